// The path of the file that this code was loaded from. The files that are installed with it lie in
// a folder above.
#pragma once

#include <string>

namespace heterog {

// The program, or the shared library in somebody else's program, that this code is part of, links
// followed; empty if the system does not say.
std::string own_file();

// The nearest file of that name, as "configs/devices.json", in a folder above `file`; empty if
// there is none.
std::string nearest_above(const std::string& file, const std::string& name);

// The file that a user names, as "runs/mine.json.gz", if there is one. Else one that came with
// heterog, by its path ("models/vgg19.json.gz") or, without a slash, by its name alone ("vgg19",
// with the folder "models" and the ending ".json.gz"). Else what was given, for the message that it
// is not there.
std::string here_or_shipped(const std::string& given, const std::string& folder,
                            const std::string& ending);

}  // namespace heterog

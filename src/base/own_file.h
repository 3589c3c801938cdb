// Which file this code was loaded from: what is installed with it lies in a folder above.
#pragma once

#include <string>

namespace heterog {

// The program, or the shared library in somebody else's program, that this code is part of, links
// followed; empty if the system does not say.
std::string own_file();

// The nearest file of that name, as "configs/devices.json", in a folder above `file`; empty if
// there is none.
std::string nearest_above(const std::string& file, const std::string& name);

}  // namespace heterog

// The nearest existing file to a mistyped path.
#pragma once

#include <string>

namespace heterog {

// " (did you mean mine/vgg19.json.gz?)": the file of the path's folder with the nearest name, its
// endings not counted. For a bare name also a model or cluster that came with heterog, by its name
// alone: " (did you mean vgg19?)". Nothing if none is near.
std::string did_you_mean_file(const std::string& path);

}  // namespace heterog

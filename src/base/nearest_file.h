// Which file a mistyped path most likely meant.
#pragma once

#include <string>

namespace heterog {

// " (did you mean models/vgg19.json.gz?)": the file of the path's folder with the nearest name, its
// endings not counted; for a bare name also one of models and configs/clusters in this folder.
// Nothing if none is near.
std::string did_you_mean_file(const std::string& path);

}  // namespace heterog

// The tiny graphs of the zoo, which the proofs execute.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace heterog::split_proof {

// Paths from the root of the source, in order of name.
inline std::vector<std::string> tiny_graphs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    if (entry.path().string().ends_with("-tiny.json.gz")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace heterog::split_proof

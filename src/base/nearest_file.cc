// Names of a folder, without their endings, to the nearest.
#include "base/nearest_file.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/nearest.h"
#include "base/own_file.h"
#include "base/text.h"

namespace heterog {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 4096;  // that a message is worth looking at

// "vgg19" of "models/vgg19.json.gz".
std::string stem(const fs::path& path) {
  std::string name = path.filename().string();
  for (const char* ending : {".gz", ".json"}) {
    if (name.ends_with(ending)) name.resize(name.size() - std::string_view(ending).size());
  }
  return name;
}

// What to write for a file, and the name that mistyped ones are compared with.
struct Candidate {
  std::string written, stem;
};

// Files of a folder in the order of their names.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; at != end;
       at.increment(error)) {
    if (error || found.size() == kMostFiles) break;
    found.push_back(folder / at->path().filename());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::string did_you_mean_file(const std::string& path) {
  const fs::path wrong(path);
  std::vector<Candidate> candidates;
  for (const fs::path& file : files_of(wrong.parent_path())) {
    candidates.push_back({file.string(), stem(file)});
  }
  // A file that is there for certain; its folder has the others.
  const fs::path shipped = nearest_above(own_file(), "configs/devices.json");
  if (!wrong.has_parent_path() && !shipped.empty()) {
    const fs::path root = shipped.parent_path().parent_path();
    for (const fs::path& folder :
         {root / "models", root / "configs" / "clusters", root / "configs" / "train"}) {
      for (const fs::path& file : files_of(folder)) candidates.push_back({stem(file), stem(file)});
    }
  }
  std::vector<std::string> stems;
  stems.reserve(candidates.size());
  for (const Candidate& one : candidates) stems.push_back(one.stem);
  const auto nearest = nearest_word(stem(wrong), stems);
  return nearest ? " (did you mean " + printable(candidates[*nearest].written, 400) + "?)" : "";
}

}  // namespace heterog

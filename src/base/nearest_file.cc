// Names of a folder, without their endings, to the nearest.
#include "base/nearest_file.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/nearest.h"
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

// Files of a folder, as it is written; in the order of their names.
void add_files(const fs::path& folder, std::vector<fs::path>& files) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; at != end;
       at.increment(error)) {
    if (error || found.size() == kMostFiles) break;
    found.push_back(folder / at->path().filename());
  }
  std::ranges::sort(found);
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::string did_you_mean_file(const std::string& path) {
  const fs::path wrong(path);
  std::vector<fs::path> files;
  add_files(wrong.parent_path(), files);
  if (!wrong.has_parent_path()) {  // where the project keeps its own
    add_files("models", files);
    add_files("configs/clusters", files);
  }
  std::vector<std::string> stems;
  stems.reserve(files.size());
  for (const fs::path& file : files) stems.push_back(stem(file));
  const std::string nearest = did_you_mean(stem(wrong), stems);
  for (std::size_t i = 0; i < files.size() && !nearest.empty(); ++i) {
    if (nearest == " (did you mean " + stems[i] + "?)") {
      return " (did you mean " + printable(files[i].string(), 400) + "?)";
    }
  }
  return "";
}

}  // namespace heterog

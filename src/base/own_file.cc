// Asks the dynamic linker.
#include "base/own_file.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <system_error>

namespace heterog {

namespace fs = std::filesystem;

std::string own_file() {
  static const char kPlace = 0;  // an address of ours
  Dl_info info = {};
  void* extra = nullptr;
  std::error_code error;
  if (dladdr1(&kPlace, &info, &extra, RTLD_DL_LINKMAP) != 0 && extra != nullptr) {
    // The program itself has no name there.
    const char* name = static_cast<const link_map*>(extra)->l_name;
    if (name != nullptr && *name != '\0') return fs::canonical(name, error).string();
  }
  return fs::read_symlink("/proc/self/exe", error).string();
}

std::string nearest_above(const std::string& file, const std::string& name) {
  const fs::path start(file);
  std::error_code error;
  for (fs::path folder = start.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::is_regular_file(folder / name, error)) return (folder / name).string();
    if (folder == folder.parent_path()) break;
  }
  return "";
}

std::string here_or_shipped(const std::string& given, const std::string& folder,
                            const std::string& ending) {
  std::error_code error;
  const fs::path path(given);
  if (path.empty() || path.is_absolute() || fs::exists(path, error)) return given;
  const bool by_name = given.find('/') == std::string::npos;
  const std::string found =
      nearest_above(own_file(), by_name ? folder + "/" + given + ending : given);
  return found.empty() ? given : found;
}

}  // namespace heterog

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

}  // namespace heterog

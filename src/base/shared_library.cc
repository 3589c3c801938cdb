// The loader of the system.
#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/check.h"

namespace heterog {

SharedLibrary::SharedLibrary(const std::string& file, const std::string& needed_by,
                             const std::string& what, const std::string& install)
    : file_(file), needed_by_(needed_by), handle_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  VALIDATE(handle_ != nullptr, "{}: needs {} ({}), which is not installed; {}", needed_by, what,
           file, install);
}

void* SharedLibrary::address(const char* name) const {
  void* found = dlsym(handle_, name);
  VALIDATE(found != nullptr, "{}: {} has no {}; expected another version", needed_by_, file_, name);
  return found;
}

}  // namespace heterog

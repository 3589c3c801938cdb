#include "runtime/host_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <limits>
#include <mutex>

#include "runtime/process_settings.h"

namespace heterog::runtime {

void keep_freed_memory() {
  if (!process_settings_allowed()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* name : {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_",
                             "MALLOC_TOP_PAD_"}) {
      if (std::getenv(name) != nullptr) return;
    }
    constexpr int kNever = std::numeric_limits<int>::max();
    mallopt(M_MMAP_THRESHOLD, kNever);
    mallopt(M_TRIM_THRESHOLD, kNever);
    mallopt(M_TOP_PAD, 64 << 20);
  });
}

}  // namespace heterog::runtime

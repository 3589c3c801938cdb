#include "runtime/kernels/host_memory.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <mutex>

#include "base/check.h"
#include "base/process_settings.h"

namespace heterog::runtime {

void check_host_has(Bytes bytes, const std::string& what) {
  const Bytes all = Bytes{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes <= all) return;
  throw Error(ErrorKind::kVerification,
              fmt::format("{} would take {:.1f} GB, this host has {:.1f} GB of memory", what,
                          static_cast<double>(bytes) / 1e9, static_cast<double>(all) / 1e9));
}

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

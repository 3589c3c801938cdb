// One flag, which is never taken back.
#include "base/process_settings.h"

#include <atomic>

namespace heterog {

namespace {
std::atomic<bool> allowed = false;
}  // namespace

void allow_process_settings() { allowed = true; }

bool process_settings_allowed() { return allowed; }

}  // namespace heterog

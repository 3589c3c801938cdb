// Permission to change settings of the whole process, which a program of ours has.
#pragma once

namespace heterog {

// The program calls it first of all; the library in somebody else's process does where it is asked
// to. Without it, no thresholds of malloc, no log level and no variable of NCCL is set.
void allow_process_settings();
bool process_settings_allowed();

}  // namespace heterog

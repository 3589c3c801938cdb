// Without LibTorch.
#include "client/process_kept.h"

namespace heterog::client {

struct ProcessKept::Settings {};

ProcessKept::ProcessKept(Begins) {}
ProcessKept::~ProcessKept() = default;

}  // namespace heterog::client

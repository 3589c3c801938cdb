// Which tasks run ops again for the backward pass: turns are theirs as well.
#pragma once

#include <cstdint>

#include "compiler/plan.h"

namespace heterog::compiler {

// So many tasks from `task` on, for the unit of the backward op `reader`.
struct EmittedAgain {
  TaskId task;
  std::uint32_t count = 0;
  OpId reader;
};

}  // namespace heterog::compiler

// Waits that are known only once a plan has been emitted.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler/emit/emitted_again.h"
#include "compiler/plan.h"

namespace heterog::compiler {

// The plan in which the second task of each pair waits for the first too, wherever the two stand;
// its tasks are numbered anew, and so are those of `again`. The plan as it is if some of them would
// then wait for each other: a sum over the whole batch, say, wants all micro-batches before one can
// go on.
Plan with_late_waits(Plan plan, std::span<const std::pair<TaskId, TaskId>> waits,
                     std::vector<EmittedAgain>& again);

}  // namespace heterog::compiler

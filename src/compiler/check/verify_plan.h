// The rules that every compiled plan keeps, whatever strategy it came from.
#pragma once

#include "compiler/plan.h"

namespace heterog::compiler {

// Only a plan that was cut anew for fewer samples has slices without any.
enum class EmptySlices { kNone, kAllowed };

// Proves the plan's own consistency (acyclic, counts, holds, payloads, buffers); ENSUREs. Run by
// compile() and rescaled() in builds with checks on.
void verify_plan(const Plan& plan, EmptySlices empty = EmptySlices::kNone);

}  // namespace heterog::compiler

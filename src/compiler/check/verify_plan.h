// The rules that every compiled plan keeps, whatever strategy it came from.
#pragma once

#include "compiler/plan.h"

namespace heterog::compiler {

// Proves the plan's own consistency (acyclic, counts, holds, payloads, buffers); ENSUREs. Run by
// compile() in builds with checks on.
void verify_plan(const Plan& plan);

}  // namespace heterog::compiler

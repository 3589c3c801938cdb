// Random plans: random dependencies, resources, ties, tasks of no time, buffers.
#pragma once

#include "base/rng.h"
#include "compiler/plan.h"

namespace heterog::sim {

compiler::Plan random_plan(Rng& rng);

}  // namespace heterog::sim

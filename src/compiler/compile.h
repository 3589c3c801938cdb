// The compiler: from a problem and a strategy to the plan of a distributed step.
#pragma once

#include "compiler/compile_options.h"
#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// The strategy must fit the problem (check_strategy). Deterministic. O(tasks). A plan that is no
// longer needed may be given back: its memory is used again.
Plan compile(const cost::Problem& problem, const decide::Strategy& strategy,
             const CompileOptions& options = {}, Plan recycled = {});

// A plan for the simulator alone. Where devices are alike under the strategy (compiler/symmetry.h),
// one stands for all of them: the step, and the peak of memory and the busy time of whoever stands
// for a device, are those of compile()'s plan, to the byte and the nanosecond. It cannot be run,
// explained or written, and says nothing of links.
struct PlanOfFew {
  Plan plan;
  IdVector<DeviceId, DeviceId> place_of;  // of each place of the cluster: its place in the plan;
                                          // empty: the plan is compile()'s
};
PlanOfFew compile_few(const cost::Problem& problem, const decide::Strategy& strategy,
                      const CompileOptions& options = {}, Plan recycled = {});
// Of a strategy that was checked, and its layout.
PlanOfFew compile_few(const cost::Problem& problem, const decide::Strategy& strategy,
                      const decide::Layout& layout, const CompileOptions& options, Plan recycled);

}  // namespace heterog::compiler

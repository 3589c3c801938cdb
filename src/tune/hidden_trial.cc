// Compiles twice: costs change how long tasks take, and not which there are.
#include "tune/hidden_trial.h"

#include "base/check.h"
#include "sim/improved_order.h"

namespace heterog::tune {

Trial hidden_trial(const std::shared_ptr<const cost::Problem>& costs, const cost::Problem& world,
                   const decide::Strategy& strategy, const compiler::CompileOptions& how) {
  Trial trial{.problem = costs, .plan = compiler::compile(*costs, strategy, how)};
  const sim::Simulated ran =
      sim::simulated_in_order(strategy, compiler::compile(world, strategy, how));
  ENSURE(ran.plan.kind == trial.plan.kind && ran.plan.op == trial.plan.op &&
         ran.plan.device == trial.plan.device && ran.plan.moved_bytes == trial.plan.moved_bytes);
  trial.steps = {
      {.begin = ran.result.start, .end = ran.result.end, .duration = ran.result.step}};
  trial.seconds = to_seconds(ran.result.step);
  return trial;
}

}  // namespace heterog::tune

// Compiles and simulates in the world, and sets that beside the plan that was thought of.
#include "tune/hidden_trial.h"

#include <algorithm>
#include <utility>

#include "sim/improved_order.h"

namespace heterog::tune {
namespace {

std::vector<measure::Drift> rows_of(const std::shared_ptr<const cost::Problem>& problem,
                                    const compiler::Plan& plan,
                                    const std::vector<runtime::MeasuredStep>& steps) {
  runtime::Job job;
  job.problem = problem;
  return measure::drift(job, plan, steps);
}

}  // namespace

Trial hidden_trial(const std::shared_ptr<const cost::Problem>& costs,
                   const std::shared_ptr<const cost::Problem>& world,
                   const decide::Strategy& strategy, const compiler::CompileOptions& how) {
  sim::Simulated ran = sim::simulated_in_order(strategy, compiler::compile(*world, strategy, how));
  Trial trial{
      .problem = world,
      .plan = std::move(ran.plan),
      .steps = {{.begin = ran.result.start, .end = ran.result.end, .duration = ran.result.step}},
      .seconds = to_seconds(ran.result.step)};
  // Where a value is fetched from depends on costs too, so kinds of tasks are set side by side, and
  // not tasks.
  const compiler::Plan planned = compiler::compile(*costs, strategy, how);
  const IdVector<TaskId, Nanoseconds> nothing(planned.task_count(), 0);
  trial.drift = rows_of(costs, planned, {{.begin = nothing, .end = nothing, .duration = 1}});
  const std::vector<measure::Drift> measured = rows_of(world, trial.plan, trial.steps);
  std::erase_if(trial.drift, [&](measure::Drift& row) {
    const auto at = std::ranges::find(measured, row.what, &measure::Drift::what);
    if (at != measured.end()) row.measured_seconds = at->measured_seconds;
    return at == measured.end();
  });
  return trial;
}

}  // namespace heterog::tune

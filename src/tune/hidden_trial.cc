// What the strategy leaves to the compiler is decided by what is believed, all else by what is.
#include "tune/hidden_trial.h"

#include <algorithm>
#include <utility>

#include "decide/layout.h"
#include "sim/improved_order.h"

namespace heterog::tune {
namespace {

// The same with the servers that these costs choose.
decide::Strategy with_servers(const cost::Problem& costs, decide::Strategy strategy) {
  const decide::Layout layout = decide::lay_out(costs, strategy);
  for (const TensorId parameter : costs.graph->parameters()) {
    if (layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = layout.home(parameter);
    const bool served = home.method == decide::SyncMethod::kParameterServer &&
                        home.replicas.size() > 1 && !home.by_rows() && home.server.valid();
    if (!served) continue;
    const auto own = std::ranges::find(strategy.sync, parameter, &decide::ParameterSync::parameter);
    if (own == strategy.sync.end()) {
      strategy.sync.push_back(
          {.parameter = parameter, .method = home.method, .server = home.server, .servers = {}});
    } else if (own->servers.empty()) {
      own->server = home.server;
    }
  }
  return strategy;
}

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
  sim::Simulated ran = sim::simulated_in_order(
      strategy, compiler::compile(*world, with_servers(*costs, strategy), how));
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

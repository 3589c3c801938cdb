// Turns measured tasks into costs of operators.
#include "measure/run_profile.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/median.h"
#include "measure/distinct_ops.h"
#include "measure/drift.h"
#include "measure/own_pace.h"
#include "measure/profiler.h"

namespace heterog::measure {

using compiler::TaskKind;

namespace {

// Seconds by number of samples.
using SecondsBySize = std::map<std::int64_t, std::vector<double>>;

// The ops that a task runs.
std::vector<OpId> ops_of(const cost::Problem& problem, const compiler::Plan& plan, TaskId task) {
  if (plan.kind[task] == TaskKind::kCompute) return {plan.op[task]};
  std::vector<OpId> ops;
  for (TensorId parameter : plan.updated[task]) {
    const graph::UpdateChain& chain = graph::chain_of(*problem.folded, parameter);
    ops.insert(ops.end(), chain.ops.begin(), chain.ops.end());
  }
  return ops;
}

}  // namespace

cost::Profile profile_of_run(const runtime::Job& job, const compiler::Plan& plan,
                             const std::vector<runtime::MeasuredStep>& steps, DeviceTypeId type) {
  const cost::Problem& problem = *job.problem;
  const graph::ModelGraph& graph = *problem.graph;
  const IdVector<TaskId, Nanoseconds> measured = typical_durations(at_own_pace(plan, steps));
  IdVector<OpId, SecondsBySize> times(graph.op_count());
  double all_measured = 0, all_predicted = 0;
  for (TaskId task : plan.task_ids()) {
    if (problem.cluster->device(plan.device[task]).type != type) continue;
    const std::vector<OpId> ops = ops_of(problem, plan, task);
    const std::int64_t samples = plan.end[task] - plan.begin[task];
    double predicted = 0;
    for (OpId op : ops) predicted += to_seconds(problem.costs.duration(op, type, samples));
    if (predicted <= 0) continue;
    all_measured += to_seconds(measured[task]);
    all_predicted += predicted;
    for (OpId op : ops) {
      const double part = to_seconds(problem.costs.duration(op, type, samples)) / predicted;
      times[op][samples].push_back(to_seconds(measured[task]) * part);
    }
  }
  cost::Profile profile = begin_profile(graph, {.device = problem.cluster->type(type).name,
                                                .repeat = static_cast<int>(steps.size())});
  if (all_predicted == 0) return profile;
  const double drift = all_measured / all_predicted;
  std::vector<std::int64_t> slices;
  for (const DistinctOp& distinct : distinct_ops(graph)) {
    cost::ProfiledOperator op{.form = distinct.form};
    SecondsBySize together;
    for (OpId id : distinct.ops) {
      op.ops.push_back(graph.op(id).name);
      for (const auto& [samples, seconds] : times[id]) {
        // One that took no time has no line through it.
        together[samples].push_back(std::max(median(seconds), 1e-9));
      }
    }
    for (const auto& [samples, seconds] : together) {
      double total = 0;
      for (double each : seconds) total += each;
      op.measured.push_back(
          {.samples = samples, .seconds = total / static_cast<double>(seconds.size())});
      slices.push_back(samples);
    }
    if (op.measured.empty()) {
      const double predicted =
          to_seconds(problem.costs.duration(distinct.ops.front(), type, problem.batch));
      op.measured.push_back(
          {.samples = problem.batch, .seconds = std::max(predicted * drift, 1e-9)});
    }
    op.fit = cost::fit_line(op.measured);
    profile.operators.push_back(std::move(op));
  }
  std::sort(slices.begin(), slices.end());
  slices.erase(std::unique(slices.begin(), slices.end()), slices.end());
  profile.slices = slices;
  profile.finished = true;
  return profile;
}

}  // namespace heterog::measure

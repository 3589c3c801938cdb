// Turns measured tasks into costs of operators.
#include "measure/run_profile.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/median.h"
#include "cost/class_ratios.h"
#include "measure/distinct_ops.h"
#include "measure/drift.h"
#include "measure/own_pace.h"
#include "measure/profiler.h"

namespace heterog::measure {

using compiler::TaskKind;

namespace {

constexpr double kLeastSeconds = 1e-9;  // one that took no time has no curve through it

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

// What each op took, on each device of the type that ran it.
void add_times(const RecordedRun& run, DeviceTypeId type, IdVector<OpId, SecondsBySize>& times) {
  const cost::Problem& problem = run.problem;
  const compiler::Plan& plan = run.plan;
  const IdVector<TaskId, Nanoseconds> measured = typical_durations(at_own_pace(plan, run.steps));
  for (TaskId task : plan.task_ids()) {
    if (problem.cluster->device(plan.device[task]).type != type) continue;
    if (plan.duration[task] <= 0) continue;
    const std::int64_t samples = plan.end[task] - plan.begin[task];
    const double off = to_seconds(measured[task]) / to_seconds(plan.duration[task]);
    for (OpId op : ops_of(problem, plan, task)) {
      times[op][samples].push_back(off * to_seconds(problem.costs.duration(op, type, samples)));
    }
  }
}

double believed_seconds(const cost::Problem& believed, OpId op, DeviceTypeId type,
                        std::int64_t samples) {
  return std::max(to_seconds(believed.costs.duration(op, type, samples)), kLeastSeconds);
}

// Of the ops of one form, the mean by size of what each took.
std::vector<cost::Measurement> measured_sizes(const DistinctOp& distinct,
                                              const IdVector<OpId, SecondsBySize>& times,
                                              std::int64_t batch) {
  SecondsBySize together;
  for (OpId id : distinct.ops) {
    for (const auto& [samples, seconds] : times[id]) {
      together[distinct.batched ? samples : batch].push_back(
          std::max(median(seconds), kLeastSeconds));
    }
  }
  std::vector<cost::Measurement> sizes;
  for (const auto& [samples, seconds] : together) {
    double total = 0;
    for (double each : seconds) total += each;
    sizes.push_back({.samples = samples, .seconds = total / static_cast<double>(seconds.size())});
  }
  return sizes;
}

// What an op is off by that was measured: the mean over its sizes.
double log_ratio(const cost::Problem& believed, OpId op, DeviceTypeId type,
                 const std::vector<cost::Measurement>& measured) {
  double sum = 0;
  for (const cost::Measurement& one : measured) {
    sum += std::log(one.seconds / believed_seconds(believed, op, type, one.samples));
  }
  return sum / static_cast<double>(measured.size());
}

}  // namespace

cost::Profile profile_of_runs(const cost::Problem& believed, std::span<const RecordedRun> runs,
                              DeviceTypeId type) {
  const graph::ModelGraph& graph = *believed.graph;
  IdVector<OpId, SecondsBySize> times(graph.op_count());
  std::size_t steps = 0;
  for (const RecordedRun& run : runs) {
    add_times(run, type, times);
    steps += run.steps.size();
  }
  cost::Profile profile = begin_profile(
      graph, {.device = believed.cluster->type(type).name, .repeat = static_cast<int>(steps)});
  profile.between = cost::Between::kModel;
  const std::vector<DistinctOp> distinct = distinct_ops(graph);
  const auto class_of = [&](OpId op) { return cost::op_work(graph, op, believed.batch).op_class; };
  std::vector<cost::MeasuredRatio> ratios;
  for (const DistinctOp& one : distinct) {
    cost::ProfiledOperator op{.form = one.form};
    for (OpId id : one.ops) op.ops.push_back(graph.op(id).name);
    op.measured = measured_sizes(one, times, believed.batch);
    for (const cost::Measurement& size : op.measured) profile.slices.push_back(size.samples);
    if (!op.measured.empty()) {
      ratios.push_back(
          {class_of(one.ops.front()), log_ratio(believed, one.ops.front(), type, op.measured)});
    }
    profile.operators.push_back(std::move(op));
  }
  if (ratios.empty()) {
    profile.operators.clear();
    return profile;
  }
  const auto by_class = cost::class_log_ratios(ratios);
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    cost::ProfiledOperator& op = profile.operators[i];
    if (op.measured.empty()) {
      const OpId id = distinct[i].ops.front();
      const double off = std::exp(by_class[static_cast<std::size_t>(class_of(id))]);
      for (const std::int64_t samples : {std::int64_t{1}, believed.batch}) {
        if (!op.measured.empty() && op.measured.back().samples == samples) continue;
        if (!distinct[i].batched && samples != believed.batch) continue;
        op.measured.push_back(
            {.samples = samples, .seconds = off * believed_seconds(believed, id, type, samples)});
      }
    }
    op.fit = cost::fit_line(op.measured);
  }
  std::ranges::sort(profile.slices);
  profile.slices.erase(std::ranges::unique(profile.slices).begin(), profile.slices.end());
  profile.finished = true;
  return profile;
}

}  // namespace heterog::measure

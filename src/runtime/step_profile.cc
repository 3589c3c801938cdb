// Single-device steps with a record of every instruction.
#include "runtime/step_profile.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "runtime/distinct_ops.h"
#include "runtime/median.h"
#include "runtime/team.h"
#include "runtime/verify.h"

namespace heterog::runtime {
namespace {

using Times = std::vector<double>;  // of the instructions of one step, in seconds

// The mean over the middle half of the steps.
Times middle_mean(const std::vector<Times>& steps) {
  std::vector<double> totals;
  totals.reserve(steps.size());
  for (const Times& step : steps) {
    totals.push_back(std::accumulate(step.begin(), step.end(), 0.0));
  }
  const std::vector<std::size_t> kept = middle_half(totals);
  Times mean(steps.front().size(), 0.0);
  for (std::size_t step : kept) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += steps[step][i];
  }
  for (double& seconds : mean) seconds /= static_cast<double>(kept.size());
  return mean;
}

// Seconds of every op, 0 for aliases.
IdVector<OpId, double> seconds_of_ops(const graph::ModelGraph& graph, const Job& job,
                                      std::int64_t samples, const ProfilerOptions& options) {
  Team team(job, IdVector<DeviceId, WorkerOptions>(
                     1, {.device = options.gpu ? at::Device(at::kCUDA, 0) : at::kCPU,
                         .seed = options.seed,
                         .threads = options.threads,
                         .repeat = options.slow,
                         .record = true}));
  const auto values = random_residents(graph, options.seed, Floats::kOwn);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team.set_resident(id, values[id]);
  }
  const Program& program = job.programs[DeviceId(0)];
  const std::size_t count = program.instructions.size();
  std::vector<Times> steps;
  for (int step = 0; step <= options.repeat; ++step) {
    const StepInputs inputs = random_inputs(graph, samples, options.seed, step + 1, Floats::kOwn);
    const StepResult result = team.step(step + 1, inputs)[DeviceId(0)];
    if (step == 0) continue;
    Times times;
    for (std::size_t i = 0; i < count; ++i) {
      const Nanoseconds end = i + 1 < count ? result.spans[InstructionId(i + 1)].begin
                                            : result.spans[InstructionId(i)].end;
      times.push_back(to_seconds(end - result.spans[InstructionId(i)].begin));
    }
    steps.push_back(std::move(times));
  }
  const Times mean = middle_mean(steps);
  IdVector<OpId, double> seconds(graph.op_count(), 0.0);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<OpId> ops;
    for (const BodyStep& step : program.instructions[InstructionId(i)].body) {
      if (step.op.valid() && !graph.op(step.op).alias) ops.push_back(step.op);
    }
    for (OpId op : ops) seconds[op] += mean[i] / static_cast<double>(ops.size());
  }
  return seconds;
}

}  // namespace

cost::Profile measure_in_steps(const graph::ModelGraph& graph,
                               const std::function<Job(std::int64_t samples)>& one_device,
                               const ProfilerOptions& options, cost::Profile begun,
                               const ProfilerHooks& hooks) {
  std::map<std::int64_t, IdVector<OpId, double>> seconds;
  for (std::size_t i = 0; i < options.slices.size(); ++i) {
    if (hooks.progress) {
      hooks.progress(static_cast<double>(i) / static_cast<double>(options.slices.size()),
                     fmt::format("steps of {} samples", options.slices[i]));
    }
    seconds[options.slices[i]] =
        seconds_of_ops(graph, one_device(options.slices[i]), options.slices[i], options);
  }
  begun.operators.clear();
  for (const DistinctOp& distinct : distinct_ops(graph)) {
    cost::ProfiledOperator op{.form = distinct.form};
    for (OpId id : distinct.ops) op.ops.push_back(graph.op(id).name);
    std::vector<double> means;  // of the ops of this form, by size
    for (const auto& [samples, of_op] : seconds) {
      double total = 0;
      for (OpId id : distinct.ops) total += of_op[id];
      // An operator whose result nobody wants is never run; it takes no time worth planning for.
      means.push_back(std::max(total / static_cast<double>(distinct.ops.size()), 1e-9));
      op.measured.push_back({.samples = samples, .seconds = means.back()});
    }
    if (!distinct.batched) {
      op.measured.resize(1);
      op.measured[0].seconds = median(means);
    }
    op.fit = cost::fit_line(op.measured);
    begun.operators.push_back(std::move(op));
  }
  begun.finished = true;
  return begun;
}

}  // namespace heterog::runtime

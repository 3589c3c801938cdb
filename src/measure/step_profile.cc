// Single-device steps with a record of every instruction.
#include "measure/step_profile.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/median.h"
#include "measure/distinct_ops.h"
#include "measure/drift.h"
#include "runtime/exec/random_data.h"

namespace heterog::measure {
namespace {

using Times = SizeSteps::Times;

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

runtime::WorkerOptions worker_options(const ProfilerOptions& options) {
  return {.device = options.gpu ? at::Device(at::kCUDA, 0) : at::kCPU,
          .streams = streams_of(options),
          .seed = options.seed,
          .threads = options.threads,
          .repeat = options.slow,
          .record = true};
}

}  // namespace

SizeSteps::SizeSteps(runtime::Job job, const ProfilerOptions& options)
    : job_(std::move(job)),
      seed_(options.seed),
      team_(job_, IdVector<DeviceId, runtime::WorkerOptions>(1, worker_options(options))) {
  const graph::ModelGraph& graph = *job_.problem->graph;
  const auto values = runtime::random_residents(graph, seed_, runtime::Floats::kOwn);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team_.set_resident(id, values[id]);
  }
}

Times SizeSteps::step() {
  const cost::Problem& problem = *job_.problem;
  const std::int64_t number = ++steps_;
  const runtime::StepInputs inputs =
      runtime::random_inputs(*problem.graph, problem.batch, seed_, number, runtime::Floats::kOwn);
  const runtime::StepResult result = team_.step(number, inputs)[DeviceId(0)];
  const std::size_t count = job_.programs[DeviceId(0)].instructions.size();
  Times times;
  for (std::size_t i = 0; i < count; ++i) {
    const Nanoseconds end = i + 1 < count ? result.spans[runtime::InstructionId(i + 1)].begin
                                          : result.spans[runtime::InstructionId(i)].end;
    times.push_back(to_seconds(end - result.spans[runtime::InstructionId(i)].begin));
  }
  return times;
}

IdVector<OpId, double> SizeSteps::seconds_of_ops(const std::vector<Times>& steps) const {
  const graph::ModelGraph& graph = *job_.problem->graph;
  const runtime::Program& program = job_.programs[DeviceId(0)];
  const Times mean = middle_mean(steps);
  IdVector<OpId, double> seconds(graph.op_count(), 0.0);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    std::vector<OpId> ops;
    for (const runtime::BodyStep& step : program.instructions[runtime::InstructionId(i)].body) {
      if (step.op.valid() && !graph.op(step.op).alias) ops.push_back(step.op);
    }
    for (OpId op : ops) seconds[op] += mean[i] / static_cast<double>(ops.size());
  }
  return seconds;
}

cost::Profile profile_of_sizes(const graph::ModelGraph& graph, const SecondsOfSizes& seconds,
                               cost::Profile begun) {
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

cost::Profile measure_in_steps(const graph::ModelGraph& graph,
                               const std::function<runtime::Job(std::int64_t samples)>& one_device,
                               const ProfilerOptions& options, cost::Profile begun,
                               const ProfilerHooks& hooks) {
  SecondsOfSizes seconds;
  for (std::size_t i = 0; i < options.slices.size(); ++i) {
    const std::int64_t samples = options.slices[i];
    if (hooks.progress) {
      hooks.progress(static_cast<double>(i) / static_cast<double>(options.slices.size()),
                     fmt::format("steps of {} samples", samples));
    }
    SizeSteps of_size(one_device(samples), options);
    of_size.step();  // warms up
    std::vector<Times> steps;
    for (int step = 0; step < options.repeat; ++step) steps.push_back(of_size.step());
    seconds[samples] = of_size.seconds_of_ops(steps);
  }
  return profile_of_sizes(graph, seconds, std::move(begun));
}

}  // namespace heterog::measure

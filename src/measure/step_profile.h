// Measures what operators cost in whole steps of the runtime, in place of one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cost/profile.h"
#include "graph/model_graph.h"
#include "measure/profiler.h"
#include "runtime/program/program.h"
#include "runtime/ranks/team.h"

namespace heterog::measure {

// Steps of one size on one device, in a row or between those of other jobs.
class SizeSteps {
 public:
  // Seconds of each instruction of a step, until the next one begins: with all that the runtime
  // does around it.
  using Times = std::vector<double>;

  // `job`: of one device.
  SizeSteps(runtime::Job job, const ProfilerOptions& options);
  SizeSteps(const SizeSteps&) = delete;
  SizeSteps& operator=(const SizeSteps&) = delete;

  Times step();
  // Seconds of every op, 0 for aliases: means over the middle half of the steps, at least one. The
  // time of one task (an update) is shared out evenly among its ops.
  IdVector<OpId, double> seconds_of_ops(const std::vector<Times>& steps) const;

 private:
  const runtime::Job job_;
  const std::uint64_t seed_;
  runtime::Team team_;
  std::int64_t steps_ = 0;
};

// By number of samples.
using SecondsOfSizes = std::map<std::int64_t, IdVector<OpId, double>>;
// `begun` with the costs of the operators.
cost::Profile profile_of_sizes(const graph::ModelGraph& graph, const SecondsOfSizes& seconds,
                               cost::Profile begun);

// For every slice size, `repeat` steps after one to warm up, with the caches as a step leaves them.
// `one_device` makes the job of a step of so many samples. Links are not measured. CPU alone.
cost::Profile measure_in_steps(const graph::ModelGraph& graph,
                               const std::function<runtime::Job(std::int64_t samples)>& one_device,
                               const ProfilerOptions& options, cost::Profile begun,
                               const ProfilerHooks& hooks);

}  // namespace heterog::measure

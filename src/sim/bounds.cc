// Longest chains and sums, of tasks and of operators.
#include "sim/bounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace heterog::sim {
namespace {

using compiler::Plan;
using cost::Problem;

// Seconds that a device type needs for `samples` samples of an op, at the best of the slice sizes
// that the table knows: a slice as large as it likes costs at least that for each of its samples.
double least_seconds(const Problem& problem, OpId op, DeviceTypeId type) {
  const double whole = to_seconds(problem.costs.duration(op, type, problem.batch));
  if (!problem.splits->sliceable[op]) return whole;
  double least = whole;
  for (std::int64_t samples : problem.costs.knots()) {
    if (samples < 1) continue;
    const double seconds = to_seconds(problem.costs.duration(op, type, samples));
    least = std::min(least,
                     seconds * static_cast<double>(problem.batch) / static_cast<double>(samples));
  }
  return least;
}

// For shares λ of the devices that add up to 1, Σ over ops of the least of λ·seconds is a bound:
// the dual of sharing every op freely. λ in proportion to speed makes it the harmonic sum where all
// ops are equally faster on a faster device.
Nanoseconds all_work(const Problem& problem) {
  const std::size_t types = problem.cluster->type_count();
  std::vector<double> devices(types, 0), share(types, 0);
  double total = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    const DeviceTypeId type = problem.cluster->device(device).type;
    devices[type.value()] += 1;
    total += problem.costs.model_speed(type);
  }
  for (std::size_t type = 0; type < types; ++type) {
    share[type] = problem.costs.model_speed(DeviceTypeId(type)) / total;
  }
  double seconds = 0;
  const auto add = [&](OpId op) {
    double least = 0;
    for (std::size_t type = 0; type < types; ++type) {
      const double here = share[type] * least_seconds(problem, op, DeviceTypeId(type));
      if (type == 0 || here < least) least = here;
    }
    seconds += least;
  };
  for (OpId op : problem.folded->ops) {
    if (!problem.graph->op(op).alias) add(op);
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    if (!problem.folded->updater[chain.parameter].valid()) continue;
    for (OpId op : chain.ops) add(op);
  }
  return static_cast<Nanoseconds>(std::floor(seconds * 1e9));
}

// With n devices some device gets at least a share of 1/n of what is cut by sample.
Nanoseconds graph_chain(const Problem& problem) {
  const auto samples = std::max<std::int64_t>(
      1, problem.batch / static_cast<std::int64_t>(problem.cluster->device_count()));
  const auto fastest = [&](OpId op) {
    if (problem.graph->op(op).alias) return Nanoseconds{0};
    Nanoseconds least = -1;
    for (std::size_t type = 0; type < problem.cluster->type_count(); ++type) {
      const Nanoseconds here = problem.costs.duration(
          op, DeviceTypeId(type), problem.splits->sliceable[op] ? samples : problem.batch);
      if (least < 0 || here < least) least = here;
    }
    return least;
  };
  // Updates follow the last gradient; their chains are short and left out.
  IdVector<OpId, Nanoseconds> end(problem.graph->op_count(), 0);
  Nanoseconds longest = 0;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == graph::Phase::kUpdate) continue;
    Nanoseconds begin = 0;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid()) begin = std::max(begin, end[read.producer]);
    }
    end[op] = begin + fastest(op);
    longest = std::max(longest, end[op]);
  }
  return longest;
}

}  // namespace

Nanoseconds Bounds::of_plan() const { return std::max({chain, stream, link}); }
Nanoseconds Bounds::of_any() const { return std::max(fastest_chain, total_speed); }

Bounds bounds(const Problem& problem, const Plan& plan) {
  Bounds bounds;
  for (Nanoseconds rank : plan.rank) bounds.chain = std::max(bounds.chain, rank);
  std::vector<Nanoseconds> load(plan.resource_count(), 0);
  for (TaskId task : plan.task_ids()) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      load[hold.resource.value()] += hold.duration;
    }
  }
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    bounds.stream = std::max(bounds.stream, load[plan.compute_stream(device).value()]);
  }
  for (LinkId link : id_range<LinkId>(plan.link_count)) {
    bounds.link = std::max(bounds.link, load[plan.link(link).value()]);
  }
  bounds.fastest_chain = graph_chain(problem);
  bounds.total_speed = all_work(problem);
  return bounds;
}

}  // namespace heterog::sim

// Adds a task to each end of each transfer and collective.
#include "compiler/emit/overhead.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "cost/all_reduce_algorithm.h"

namespace heterog::compiler {
namespace {

struct End {
  TaskId moves;
  DeviceId device;
  double bytes = 0;  // sent and received
};

// How often a member, the i-th of n, sends all bytes of an all-reduce, and receives them.
double times_sent(cost::AllReduceAlgorithm algorithm, std::size_t i, std::size_t n) {
  switch (algorithm) {
    case cost::AllReduceAlgorithm::kRing:
      return 2 * static_cast<double>(n - 1) / static_cast<double>(n);
    case cost::AllReduceAlgorithm::kExchange:
      return static_cast<double>(n - 1);
    case cost::AllReduceAlgorithm::kTree: {  // up and down each of its edges
      std::size_t edges = i == 0 ? 0 : 1;
      for (std::size_t reach = 1; i + reach < n; reach *= 2) {
        if (i != 0 && reach >= cost::tree_reach(i)) break;
        ++edges;
      }
      return static_cast<double>(edges);
    }
  }
  ENSURE(false);
}

// The bytes of each all-reduce that the task is: the second is PowerSGD's.
cost::CompressedBytes all_reduced(const graph::ModelGraph& graph, const Plan& plan, TaskId task) {
  if (!plan.is_compressed(task)) return {.first = plan.moved_bytes[task]};
  cost::CompressedBytes bytes;
  for (const Carried& one : plan.carried_by(task)) {
    bytes += cost::compressed_bytes(one.compression, graph, one.tensor);
  }
  return bytes;
}

// Of a reduce-scatter or an all-gather, whose bytes are those of the whole value, each member sends
// and receives (n−1)/n.
void add_ends(const graph::ModelGraph& graph, const Plan& plan, TaskId task,
              std::vector<End>& ends) {
  const auto bytes = static_cast<double>(plan.moved_bytes[task]);
  const auto members = plan.participants[task];
  if (is_transfer(plan.kind[task])) {
    ends.push_back({task, plan.peer[task], bytes});
    ends.push_back({task, plan.device[task], bytes});
    return;
  }
  const std::size_t n = members.size();
  if (plan.kind[task] != TaskKind::kAllReduce) {
    for (DeviceId member : members) {
      ends.push_back(
          {task, member, 2 * bytes * static_cast<double>(n - 1) / static_cast<double>(n)});
    }
    return;
  }
  const cost::CompressedBytes sums = all_reduced(graph, plan, task);
  for (std::size_t i = 0; i < n; ++i) {
    double moved = 0;
    for (Bytes sum : {sums.first, sums.second}) {
      if (sum == 0) continue;
      moved += times_sent(cost::all_reduce_algorithm(n, sum), i, n) * static_cast<double>(sum);
    }
    ends.push_back({task, members[i], 2 * moved});
  }
}

}  // namespace

void add_overheads(const cost::Problem& problem, PlanBuilder& builder) {
  const cluster::Cluster& cluster = *problem.cluster;
  const auto overhead = [&](DeviceId device) {
    return cluster.device(device).overhead_seconds_per_byte;
  };
  double greatest = 0;
  for (DeviceId device : cluster.place_ids()) greatest = std::max(greatest, overhead(device));
  if (greatest == 0) return;
  builder.end_task();
  const Plan& plan = builder.plan();
  std::vector<End> ends;
  for (TaskId task : plan.task_ids()) {
    if (is_communication(plan.kind[task])) add_ends(*problem.graph, plan, task, ends);
  }
  for (const End& end : ends) {
    const Nanoseconds duration = to_nanoseconds(overhead(end.device) * end.bytes);
    if (duration == 0) continue;
    const TaskId task = builder.add_task({.kind = TaskKind::kOverhead,
                                          .op = plan.op[end.moves],
                                          .tensor = plan.tensor[end.moves],
                                          .device = end.device,
                                          .begin = plan.begin[end.moves],
                                          .end = plan.end[end.moves],
                                          .duration = duration});
    builder.hold(task, {plan.compute_stream(end.device), duration, 0});
    builder.depend(end.moves, task);
  }
}

}  // namespace heterog::compiler

// Adds a task to each end of each transfer and collective.
#include "compiler/emit/overhead.h"

#include <algorithm>
#include <vector>

namespace heterog::compiler {
namespace {

struct End {
  TaskId moves;
  DeviceId device;
  double bytes = 0;  // sent and received
};

// Of an all-reduce each member sends and receives 2(n−1)/n of the bytes; of a reduce-scatter or an
// all-gather, whose bytes are those of the whole value, (n−1)/n.
void add_ends(const Plan& plan, TaskId task, std::vector<End>& ends) {
  const auto bytes = static_cast<double>(plan.moved_bytes[task]);
  const auto members = plan.participants[task];
  if (members.empty()) {
    ends.push_back({task, plan.peer[task], bytes});
    ends.push_back({task, plan.device[task], bytes});
    return;
  }
  const auto n = static_cast<double>(members.size());
  const double rounds = plan.kind[task] == TaskKind::kAllReduce ? 2 : 1;
  for (DeviceId member : members) {
    ends.push_back({task, member, 2 * rounds * (n - 1) / n * bytes});
  }
}

}  // namespace

void add_overheads(const cluster::Cluster& cluster, PlanBuilder& builder) {
  const auto overhead = [&](DeviceId device) {
    return cluster.device(device).overhead_seconds_per_byte;
  };
  double greatest = 0;
  for (DeviceId device : cluster.device_ids()) greatest = std::max(greatest, overhead(device));
  if (greatest == 0) return;
  builder.end_task();
  const Plan& plan = builder.plan();
  std::vector<End> ends;
  for (TaskId task : plan.task_ids()) {
    if (is_communication(plan.kind[task])) add_ends(plan, task, ends);
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

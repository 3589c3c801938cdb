// Builds plans that no strategy would give, to try the simulator's corners.
#include "sim/random_plan.h"

#include <utility>

#include "compiler/order.h"
#include "compiler/plan_builder.h"

namespace heterog::sim {

using compiler::PlanBuilder;
using compiler::TaskKind;

compiler::Plan random_plan(Rng& rng) {
  const std::size_t devices = 1 + rng.below(4);
  const std::size_t links = rng.below(6);
  const std::size_t tasks = 1 + rng.below(40);
  // Few distinct durations, so that there are ties; some tasks take none.
  const std::int64_t longest = rng.below(2) ? 3 : 1000;
  // Half of the plans are like compiled ones: some tasks hold their device's stream and nothing
  // else, the others leave streams alone.
  const bool has_streams = rng.below(2);
  PlanBuilder builder(devices, links);
  builder.plan().batch = 1;
  std::vector<std::pair<BufferId, TaskId>> buffers;
  for (std::size_t i = 0; i < tasks; ++i) {
    PlanBuilder::Task spec;
    spec.kind = TaskKind::kCompute;
    spec.op = OpId(rng.below(5));
    spec.device = DeviceId(rng.below(devices));
    spec.end = 1;
    spec.duration = static_cast<Nanoseconds>(rng.below(longest + 1));
    spec.workspace = static_cast<Bytes>(rng.below(20));
    const bool on_stream = has_streams && rng.below(5) < 3;
    // Some of the others are collectives, and some transfers by kernels, several at a time.
    const bool by_kernels = has_streams && !on_stream && rng.below(3) == 0;
    if (by_kernels) spec.kind = TaskKind::kTransfer;
    const TaskId task = builder.add_task(spec);
    const std::size_t resources = builder.plan().resource_count();
    if (on_stream) {
      builder.hold(task, {builder.plan().compute_stream(spec.device), spec.duration});
    }
    std::vector<DeviceId> members;
    if (has_streams && !on_stream && !by_kernels && rng.below(3) == 0) {
      for (DeviceId device : id_range<DeviceId>(devices)) {
        if (rng.below(2)) members.push_back(device);
      }
      if (members.size() < 2) members.clear();
    }
    for (DeviceId member : members) {
      builder.hold(task, {builder.plan().collective_channel(member), spec.duration});
      builder.participate(task, member);
    }
    if (by_kernels) {
      for (DeviceId device : id_range<DeviceId>(devices)) {
        if (rng.below(2)) builder.participate(task, device);
      }
    }
    const std::size_t held =
        on_stream || !members.empty() ? 0 : 1 + rng.below(rng.below(3) ? 2 : 4);
    std::vector<std::size_t> chosen;
    for (std::size_t h = 0; h < held; ++h) {
      const std::size_t resource =
          has_streams ? devices + rng.below(resources - devices) : rng.below(resources);
      if (std::find(chosen.begin(), chosen.end(), resource) != chosen.end()) continue;
      chosen.push_back(resource);
      const Nanoseconds hold =
          rng.below(3) ? spec.duration : static_cast<Nanoseconds>(rng.below(spec.duration + 1));
      builder.hold(task, {ResourceId(resource), hold, static_cast<Bytes>(rng.below(100))});
    }
    for (std::size_t e = rng.below(4); e > 0 && i > 0; --e) {
      builder.depend(TaskId(rng.below(i)), task);
    }
    for (std::size_t r = rng.below(3); r > 0 && !buffers.empty(); --r) {
      const auto& [buffer, maker] = buffers[rng.below(buffers.size())];
      builder.depend(maker, task);
      builder.read(task, buffer);
    }
    for (std::size_t a = rng.below(3); a > 0; --a) {
      buffers.emplace_back(builder.allocate(task, DeviceId(rng.below(devices)),
                                            static_cast<Bytes>(rng.below(50)), TensorId()),
                           task);
    }
  }
  compiler::Plan plan = std::move(builder).finish();
  plan.static_memory.assign(devices, {});
  plan.capacity.assign(devices, 0);
  for (DeviceId device : id_range<DeviceId>(devices)) {
    plan.static_memory[device].parameters = static_cast<Bytes>(rng.below(30));
    plan.capacity[device] = static_cast<Bytes>(rng.below(200));
  }
  if (rng.below(2)) {
    for (std::size_t device = 0; device < devices; ++device) {
      plan.drag.push_back({static_cast<std::int32_t>(rng.below(3) * 150),
                           static_cast<std::int32_t>(rng.below(3) * 37)});
    }
  }
  compiler::set_ranks(plan);
  return plan;
}

void shuffle_priorities(compiler::Plan& plan, Rng& rng) {
  auto& priority = plan.priority.raw();
  for (std::size_t i = priority.size(); i > 1; --i) {
    std::swap(priority[i - 1], priority[rng.below(i)]);
  }
}

}  // namespace heterog::sim

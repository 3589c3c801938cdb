// Replays the allocations of a timeline.
#include "sim/memory.h"

#include <algorithm>

namespace heterog::sim {
namespace {

struct Change {
  Nanoseconds time = 0;
  DeviceId device;
  Bytes bytes = 0;
};

}  // namespace

std::vector<MemoryPoint> memory_curve(const compiler::Plan& plan, const SimResult& result) {
  // A buffer ends with the last of its readers, or with its task.
  IdVector<BufferId, Nanoseconds> last_use(plan.buffers.size(), 0);
  std::vector<Change> changes;
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.allocates[task]) {
      last_use[buffer] = std::max(last_use[buffer], result.end[task]);
    }
    for (BufferId buffer : plan.reads[task]) {
      last_use[buffer] = std::max(last_use[buffer], result.end[task]);
    }
  }
  const auto change = [&](Nanoseconds time, DeviceId device, Bytes bytes) {
    if (bytes != 0) changes.push_back({time, device, bytes});
  };
  for (TaskId task : plan.task_ids()) {
    change(result.start[task], plan.device[task], plan.workspace[task]);
    change(result.end[task], plan.device[task], -plan.workspace[task]);
    for (BufferId buffer : plan.allocates[task]) {
      const auto& info = plan.buffers[buffer];
      change(result.start[task], info.device, info.bytes);
      change(last_use[buffer], info.device, -info.bytes);
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.time < b.time; });
  std::vector<MemoryPoint> curve;
  IdVector<DeviceId, Bytes> live(plan.device_count, 0);
  IdVector<DeviceId, std::size_t> last_point(plan.device_count, 0);
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    live[device] = plan.static_memory[device].total();
    last_point[device] = curve.size();
    curve.push_back({0, device, live[device]});
  }
  for (const Change& c : changes) {
    live[c.device] += c.bytes;
    MemoryPoint& last = curve[last_point[c.device]];
    if (last.time == c.time) {
      last.bytes = live[c.device];
      continue;
    }
    last_point[c.device] = curve.size();
    curve.push_back({c.time, c.device, live[c.device]});
  }
  return curve;
}

}  // namespace heterog::sim

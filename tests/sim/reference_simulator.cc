// One moment after another, every ready task looked at in every round.
#include "sim/reference_simulator.h"

#include <algorithm>
#include <set>

namespace heterog::sim {

using compiler::Hold;
using decide::OrderPolicy;

SimResult reference_simulate(const compiler::Plan& plan, OrderPolicy order) {
  const std::size_t tasks = plan.task_count();
  SimResult result;
  result.start.assign(tasks, -1);
  result.end.assign(tasks, -1);
  std::vector<bool> ended(tasks, false);
  std::vector<Nanoseconds> ready_since(tasks, -1);
  IdVector<DeviceId, Bytes> live(plan.device_count, 0);
  result.peak_bytes.assign(plan.device_count, 0);
  const auto note = [&](DeviceId device, TaskId task) {
    if (live[device] <= result.peak_bytes[device]) return;
    result.peak_bytes[device] = live[device];
    if (live[device] > plan.capacity[device] && !result.out_of_memory) {
      result.out_of_memory = OutOfMemory{device, task, 0};
    }
  };
  for (DeviceId d : id_range<DeviceId>(plan.device_count)) {
    live[d] = plan.static_memory[d].total();
    note(d, TaskId());
  }
  std::vector<bool> released(plan.buffers.size(), false);
  std::vector<std::vector<TaskId>> users(plan.buffers.size());
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.allocates[task]) users[buffer.value()].push_back(task);
    for (BufferId buffer : plan.reads[task]) users[buffer.value()].push_back(task);
  }
  const auto is_ready = [&](TaskId task) {
    for (TaskId before : plan.task_ids()) {
      const auto next = plan.successors[before];
      if (!ended[before.value()] && std::find(next.begin(), next.end(), task) != next.end()) {
        return false;
      }
    }
    return true;
  };
  // A stream: nobody who holds it holds anything else, holds it for less than it takes, or slows
  // devices.
  const auto is_stream = [&](ResourceId resource) {
    for (TaskId task : plan.task_ids()) {
      for (const Hold& hold : plan.holds[task]) {
        if (hold.resource != resource) continue;
        if (plan.holds[task].size() != 1 || hold.duration != plan.duration[task]) return false;
        if (!plan.participants[task].empty()) return false;
      }
    }
    return true;
  };
  // By how many thousandths a device computes slower now: what its participations add up to.
  const auto drag_at = [&](DeviceId device) {
    Nanoseconds drag = 0;
    for (TaskId task : plan.task_ids()) {
      if (result.start[task] < 0 || ended[task.value()] || plan.duration[task] == 0) continue;
      for (DeviceId member : plan.participants[task]) {
        if (member == device) drag += plan.drag_of(task, device);
      }
    }
    return drag;
  };
  // At the end of a moment what runs goes on at the pace that its device has from then.
  std::vector<Nanoseconds> pace(plan.task_count(), 0);
  const auto settle_paces = [&](Nanoseconds now) {
    for (TaskId task : plan.task_ids()) {
      const auto holds = plan.holds[task];
      if (holds.size() != 1 || holds[0].resource.value() >= plan.device_count) continue;
      if (result.start[task] < 0 || result.end[task] <= now || !is_stream(holds[0].resource))
        continue;
      const Nanoseconds from = 1000 + pace[task.value()];
      pace[task.value()] = drag_at(DeviceId(holds[0].resource.value()));
      const Nanoseconds to = 1000 + pace[task.value()];
      if (from != to) result.end[task] = now + ((result.end[task] - now) * to + from - 1) / from;
    }
  };
  const auto is_free = [&](ResourceId resource, Nanoseconds now) {
    for (TaskId other : plan.task_ids()) {
      if (result.start[other] < 0) continue;
      for (const Hold& hold : plan.holds[other]) {
        if (hold.resource == resource && held_until(plan, result, other, hold) > now) return false;
      }
    }
    return true;
  };
  // What takes time waits until what takes none on the same stream has ended.
  const auto waits_for_instant = [&](TaskId task) {
    if (plan.duration[task] == 0 || plan.holds[task].size() != 1) return false;
    const ResourceId stream = plan.holds[task][0].resource;
    if (!is_stream(stream)) return false;
    for (TaskId other : plan.task_ids()) {
      if (result.start[other] < 0 || ended[other.value()]) continue;
      for (const Hold& hold : plan.holds[other]) {
        if (hold.resource == stream) return true;
      }
    }
    return false;
  };
  Nanoseconds now = 0;
  while (true) {
    // Everything that ends by now ends.
    for (TaskId task : plan.task_ids()) {
      if (result.start[task] < 0 || ended[task.value()] || result.end[task] > now) continue;
      ended[task.value()] = true;
      live[plan.device[task]] -= plan.workspace[task];
    }
    // A buffer is given back when its task and all its readers have ended.
    for (BufferId buffer : id_range<BufferId>(plan.buffers.size())) {
      if (released[buffer.value()]) continue;
      const bool in_use = std::any_of(users[buffer.value()].begin(), users[buffer.value()].end(),
                                      [&](TaskId task) { return !ended[task.value()]; });
      if (in_use) continue;
      released[buffer.value()] = true;
      live[plan.buffers[buffer].device] -= plan.buffers[buffer].bytes;
    }
    std::vector<TaskId> ready;
    for (TaskId task : plan.task_ids()) {
      if (result.start[task] >= 0 || !is_ready(task)) continue;
      if (ready_since[task.value()] < 0) ready_since[task.value()] = now;
      ready.push_back(task);
    }
    std::sort(ready.begin(), ready.end(), [&](TaskId a, TaskId b) {
      const Nanoseconds ta = order == OrderPolicy::kFifo ? ready_since[a.value()] : 0;
      const Nanoseconds tb = order == OrderPolicy::kFifo ? ready_since[b.value()] : 0;
      return std::pair(ta, plan.priority[a]) < std::pair(tb, plan.priority[b]);
    });
    std::set<ResourceId> held_back;
    for (TaskId task : ready) {
      if (waits_for_instant(task)) held_back.insert(plan.holds[task][0].resource);
      bool startable = true;
      for (const Hold& hold : plan.holds[task]) {
        startable = startable && is_free(hold.resource, now) && !held_back.contains(hold.resource);
      }
      if (!startable) continue;
      result.start[task] = now;
      result.end[task] = now + plan.duration[task];
      result.dispatch.push_back(task);
      live[plan.device[task]] += plan.workspace[task];
      for (BufferId buffer : plan.allocates[task]) {
        live[plan.buffers[buffer].device] += plan.buffers[buffer].bytes;
        if (plan.buffers[buffer].device != plan.device[task]) {
          note(plan.buffers[buffer].device, task);
        }
      }
      note(plan.device[task], task);
    }
    // The next moment: the earliest end of a task or release of a resource; the same one again if
    // something that takes no time has started.
    bool goes_on = false;  // something that takes no time has not ended yet
    for (TaskId task : plan.task_ids()) {
      goes_on =
          goes_on || (result.start[task] >= 0 && !ended[task.value()] && result.end[task] <= now);
    }
    if (!goes_on && !plan.drag.empty()) settle_paces(now);
    Nanoseconds next = -1;
    const auto consider = [&](Nanoseconds time) {
      if (time >= now && (next < 0 || time < next)) next = time;
    };
    for (TaskId task : plan.task_ids()) {
      if (result.start[task] < 0) continue;
      if (!ended[task.value()]) consider(result.end[task]);
      for (const Hold& hold : plan.holds[task]) {
        const Nanoseconds until = held_until(plan, result, task, hold);
        if (until > now) consider(until);
      }
    }
    if (next < 0) break;
    now = next;
  }
  for (TaskId task : plan.task_ids()) result.step = std::max(result.step, result.end[task]);
  if (result.out_of_memory) {
    const DeviceId device = result.out_of_memory->device;
    result.out_of_memory->missing_bytes = result.peak_bytes[device] - plan.capacity[device];
  }
  return result;
}

}  // namespace heterog::sim

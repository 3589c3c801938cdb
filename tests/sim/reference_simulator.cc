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
  // A stream: nobody who holds it holds anything else, or holds it for less than it takes.
  const auto is_stream = [&](ResourceId resource) {
    for (TaskId task : plan.task_ids()) {
      for (const Hold& hold : plan.holds[task]) {
        if (hold.resource != resource) continue;
        if (plan.holds[task].size() != 1 || hold.duration != plan.duration[task]) return false;
      }
    }
    return true;
  };
  const auto collectives_at = [&](DeviceId device) {
    int count = 0;
    for (TaskId task : plan.task_ids()) {
      if (result.start[task] < 0 || ended[task.value()] || plan.duration[task] == 0) continue;
      for (DeviceId member : plan.participants[task]) count += member == device;
    }
    return count;
  };
  // What runs on a device ends at another time once its pace has changed.
  const auto change_pace = [&](DeviceId device, Nanoseconds now, bool slower) {
    const ResourceId stream = plan.compute_stream(device);
    if (!is_stream(stream)) return;
    const Nanoseconds drag = plan.collective_drag[device];
    for (TaskId task : plan.task_ids()) {
      const auto holds = plan.holds[task];
      if (holds.size() != 1 || holds[0].resource != stream || result.start[task] < 0) continue;
      const Nanoseconds left = result.end[task] - now;
      if (left <= 0 || drag == 0) continue;
      const Nanoseconds thousand = 1000, whole = thousand + drag;
      result.end[task] = now + (slower ? (left * whole + thousand - 1) / thousand
                                       : (left * thousand + whole - 1) / whole);
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
      if (plan.collective_drag.empty() || plan.duration[task] == 0) continue;
      for (DeviceId member : plan.participants[task]) {
        if (collectives_at(member) == 0) change_pace(member, now, false);
      }
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
      if (!plan.collective_drag.empty() && plan.duration[task] > 0) {
        for (DeviceId member : plan.participants[task]) {
          if (collectives_at(member) == 1) change_pace(member, now, true);
        }
        const auto holds = plan.holds[task];
        if (holds.size() == 1 && holds[0].resource.value() < plan.device_count &&
            is_stream(holds[0].resource)) {
          const DeviceId device(holds[0].resource.value());
          const Nanoseconds drag = collectives_at(device) > 0 ? plan.collective_drag[device] : 0;
          result.end[task] = now + (plan.duration[task] * (1000 + drag) + 999) / 1000;
        }
      }
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

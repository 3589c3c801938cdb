// Checks of a timeline, one function a property.
#include "sim/check_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::Plan;
using decide::OrderPolicy;

constexpr std::size_t kMaxComplaints = 20;

// A resource is taken from `begin` to `end` by a task.
struct Use {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  TaskId task;
};

class Checker {
 public:
  Checker(const Plan& plan, const SimResult& result, OrderPolicy order)
      : plan_(plan), result_(result), order_(order) {}

  std::vector<std::string> check() {
    if (!complete()) return complaints_;
    collect_paces();
    times();
    collect_uses();
    exclusive();
    for (TaskId task : plan_.task_ids()) waiting(task);
    behind_instants();
    totals();
    memory();
    return complaints_;
  }

 private:
  template <class... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    if (complaints_.size() < kMaxComplaints) {
      complaints_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
  }
  Nanoseconds start(TaskId task) const { return result_.start[task]; }
  Nanoseconds end(TaskId task) const { return result_.end[task]; }

  bool complete() {
    const std::size_t tasks = plan_.task_count();
    if (result_.start.size() != tasks || result_.end.size() != tasks ||
        result_.dispatch.size() != tasks) {
      complain("the timeline has {} starts and {} dispatches, the plan {} tasks",
               result_.start.size(), result_.dispatch.size(), tasks);
      return false;
    }
    std::vector<std::uint8_t> seen(tasks, 0);
    Nanoseconds last = 0;
    for (TaskId task : result_.dispatch) {
      if (task.value() >= tasks || seen[task.value()]++) {
        complain("task {} is dispatched twice, or does not exist", task.value());
        return false;
      }
      if (start(task) < last) complain("task {} is dispatched out of order", task.value());
      last = start(task);
    }
    return true;
  }

  // Of each device, from when on its computation is slower by how many thousandths.
  void collect_paces() {
    paces_.assign(plan_.device_count, {});
    if (plan_.drag.empty()) return;
    for (TaskId task : result_.dispatch) {
      if (plan_.duration[task] == 0) continue;
      for (DeviceId device : plan_.participants[task]) {
        paces_[device][start(task)] += plan_.drag_of(task, device);
        paces_[device][end(task)] -= plan_.drag_of(task, device);
      }
    }
    for (auto& changes : paces_) {
      Nanoseconds drag = 0;
      for (auto& [time, change] : changes) change = drag += change;
    }
  }

  // After its duration; on a compute stream what is left of it is stretched or shrinks whenever the
  // pace changes, to whole nanoseconds, rounded up.
  Nanoseconds due_end(TaskId task) const {
    Nanoseconds due = start(task) + plan_.duration[task];
    const auto holds = plan_.holds[task];
    const bool computes = holds.size() == 1 && holds[0].resource.value() < plan_.device_count;
    if (!computes || plan_.drag.empty()) return due;
    const auto rounded_up = [](Nanoseconds a, Nanoseconds b) { return (a + b - 1) / b; };
    Nanoseconds pace = 0;
    for (const auto& [time, drag] : paces_[DeviceId(holds[0].resource.value())]) {
      if (time >= due) break;
      if (time <= start(task)) {
        due = start(task) + rounded_up(plan_.duration[task] * (1000 + drag), 1000);
      } else {
        due = time + rounded_up((due - time) * (1000 + drag), 1000 + pace);
      }
      pace = drag;
    }
    return due;
  }

  void times() {
    Nanoseconds step = 0;
    ready_.assign(plan_.task_count(), 0);
    for (TaskId task : plan_.task_ids()) {
      if (end(task) != due_end(task)) {
        complain("task {} takes {} ns, its duration is {} and it has to take {}", task.value(),
                 end(task) - start(task), plan_.duration[task], due_end(task) - start(task));
      }
      if (plan_.duration[task] == 0) instant_moments_.insert(start(task));
      step = std::max(step, end(task));
      for (TaskId next : plan_.successors[task]) {
        ready_[next] = std::max(ready_[next], end(task));
      }
    }
    for (TaskId task : plan_.task_ids()) {
      if (start(task) < ready_[task]) {
        complain("task {} starts at {}, its inputs end at {}", task.value(), start(task),
                 ready_[task]);
      }
    }
    if (step != result_.step)
      complain("the last task ends at {}, the step at {}", step, result_.step);
  }

  void collect_uses() {
    uses_.assign(plan_.resource_count(), {});
    for (TaskId task : result_.dispatch) {
      for (const Hold& hold : plan_.holds[task]) {
        uses_[hold.resource.value()].push_back(
            {start(task), held_until(plan_, result_, task, hold), task});
      }
    }
  }

  void exclusive() {
    for (std::size_t resource = 0; resource < uses_.size(); ++resource) {
      for (std::size_t i = 1; i < uses_[resource].size(); ++i) {
        const Use& before = uses_[resource][i - 1];
        const Use& after = uses_[resource][i];
        if (after.begin < before.end) {
          complain("resource {} runs tasks {} and {} at {}", resource, before.task.value(),
                   after.task.value(), after.begin);
        }
      }
    }
  }

  // Smaller runs first.
  std::tuple<Nanoseconds, std::uint32_t> priority(TaskId task) const {
    return {order_ == OrderPolicy::kFifo ? ready_[task] : 0, plan_.priority[task]};
  }

  // While the task waits, something must hold it up: at every moment a resource that is taken since
  // earlier, or at this moment by a task of higher priority.
  void waiting(TaskId task) {
    if (start(task) == ready_[task]) return;
    std::vector<Use> blocking;
    for (const Hold& hold : plan_.holds[task]) {
      const std::vector<Use>& uses = uses_[hold.resource.value()];
      auto use = std::partition_point(uses.begin(), uses.end(),
                                      [&](const Use& u) { return u.end <= ready_[task]; });
      for (; use != uses.end() && use->begin < start(task); ++use) blocking.push_back(*use);
    }
    std::sort(blocking.begin(), blocking.end(), [](const Use& a, const Use& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    Nanoseconds covered = ready_[task];  // held up until then
    for (std::size_t i = 0; i < blocking.size();) {
      const Nanoseconds moment = blocking[i].begin;
      if (moment > covered) break;
      Nanoseconds until = covered;
      bool overtaken = false, outranked = false;
      for (; i < blocking.size() && blocking[i].begin == moment; ++i) {
        until = std::max(until, blocking[i].end);
        (priority(blocking[i].task) < priority(task) ? outranked : overtaken) = true;
      }
      // Nobody may overtake a ready task that is free to start.
      const bool free = moment >= covered && !outranked;
      const bool comparable = moment >= ready_[task] && !instant_moments_.contains(moment);
      if (overtaken && comparable && free) {
        complain("task {} is overtaken at {} by one of lower priority", task.value(), moment);
      }
      covered = until;
    }
    if (covered < start(task)) {
      complain("task {} could start at {} and starts at {}", task.value(), covered, start(task));
    }
  }

  // A stream: whoever holds the resource holds nothing else, from its start to its end, and slows
  // no device.
  std::vector<std::uint8_t> find_streams() const {
    std::vector<std::uint8_t> is_stream(plan_.resource_count(), 1);
    for (TaskId task : plan_.task_ids()) {
      for (const Hold& hold : plan_.holds[task]) {
        const bool alone = plan_.holds[task].size() == 1 && hold.duration == plan_.duration[task];
        if (!alone || !plan_.participants[task].empty()) is_stream[hold.resource.value()] = 0;
      }
    }
    return is_stream;
  }

  // Until a task that takes no time has ended, its stream begins nothing that takes time: what it
  // makes ready there at once is not overtaken by what is less urgent.
  void behind_instants() {
    constexpr std::size_t kElsewhere = ~std::size_t{0};
    const std::vector<std::uint8_t> is_stream = find_streams();
    const auto on_same_stream = [&](TaskId a, TaskId b) {
      return plan_.holds[a].size() == 1 && plan_.holds[b].size() == 1 &&
             plan_.holds[a][0].resource == plan_.holds[b][0].resource &&
             is_stream[plan_.holds[a][0].resource.value()];
    };
    IdVector<TaskId, std::size_t> place(plan_.task_count(), 0);
    for (std::size_t i = 0; i < result_.dispatch.size(); ++i) place[result_.dispatch[i]] = i;
    // From which place in the sequence on a task is ready; 0 where nothing instant came before it.
    IdVector<TaskId, std::size_t> ready_from(plan_.task_count(), 0);
    for (TaskId task : plan_.task_ids()) {
      if (plan_.duration[task] != 0) continue;
      for (TaskId next : plan_.successors[task]) {
        if (end(task) != ready_[next]) continue;
        const std::size_t from = on_same_stream(task, next) ? place[task] + 1 : kElsewhere;
        ready_from[next] = std::max(ready_from[next], from);
      }
    }
    for (TaskId task : plan_.task_ids()) {
      if (ready_from[task] == 0 || ready_from[task] == kElsewhere) continue;
      const std::vector<Use>& uses = uses_[plan_.holds[task][0].resource.value()];
      auto use = std::ranges::lower_bound(uses, ready_[task], {}, &Use::begin);
      for (; use != uses.end() && use->begin == ready_[task]; ++use) {
        if (place[use->task] < ready_from[task] || place[use->task] > place[task]) continue;
        if (use->end == use->begin) continue;
        if (priority(task) < priority(use->task)) {
          complain("task {} is ready at {} and overtaken by task {} of lower priority",
                   task.value(), ready_[task], use->task.value());
        }
      }
    }
  }

  void totals() {
    for (std::size_t resource = 0; resource < uses_.size(); ++resource) {
      Nanoseconds busy = 0;
      for (const Use& use : uses_[resource]) busy += use.end - use.begin;
      if (resource < plan_.device_count && busy != result_.device_busy[DeviceId(resource)]) {
        complain("device {} is busy for {}, the result says {}", resource, busy,
                 result_.device_busy[DeviceId(resource)]);
      }
    }
    IdVector<LinkId, Bytes> bytes(plan_.link_count, 0);
    IdVector<LinkId, Nanoseconds> busy(plan_.link_count, 0);
    const std::size_t first = 2 * plan_.device_count;
    for (TaskId task : plan_.task_ids()) {
      for (const Hold& hold : plan_.holds[task]) {
        const std::size_t resource = hold.resource.value();
        if (resource < first || resource >= first + plan_.link_count) continue;
        bytes[LinkId(resource - first)] += hold.bytes;
        busy[LinkId(resource - first)] += hold.duration;
      }
    }
    for (LinkId link : id_range<LinkId>(plan_.link_count)) {
      if (bytes[link] != result_.link_bytes[link] || busy[link] != result_.link_busy[link]) {
        complain("link {} moves {} bytes in {} ns, the result says {} in {}", link.value(),
                 bytes[link], busy[link], result_.link_bytes[link], result_.link_busy[link]);
      }
    }
  }

  // Peaks if tasks that take no time end at once (the least), and if they end with their moment.
  IdVector<DeviceId, Bytes> replay(bool instant_first) const {
    struct Event {
      Nanoseconds time;
      int phase;  // ends of what ran, then starts, then ends of what took no time
      std::size_t place;
      TaskId task;
      bool starts;
    };
    std::vector<Event> events;
    events.reserve(2 * plan_.task_count());
    for (std::size_t place = 0; place < result_.dispatch.size(); ++place) {
      const TaskId task = result_.dispatch[place];
      const bool instant = plan_.duration[task] == 0;
      events.push_back({start(task), 1, 2 * place, task, true});
      if (instant && instant_first) {
        events.push_back({end(task), 1, 2 * place + 1, task, false});
      } else {
        events.push_back({end(task), instant ? 2 : 0, place, task, false});
      }
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.time, a.phase, a.place) < std::tie(b.time, b.phase, b.place);
    });
    IdVector<DeviceId, Bytes> live(plan_.device_count, 0), peak(plan_.device_count, 0);
    for (DeviceId device : id_range<DeviceId>(plan_.device_count)) {
      live[device] = peak[device] = plan_.static_memory[device].total();
    }
    IdVector<BufferId, std::uint32_t> left = plan_.readers;
    const auto release = [&](BufferId buffer) {
      live[plan_.buffers[buffer].device] -= plan_.buffers[buffer].bytes;
    };
    for (const Event& event : events) {
      const DeviceId device = plan_.device[event.task];
      if (event.starts) {
        live[device] += plan_.workspace[event.task];
        for (BufferId buffer : plan_.allocates[event.task]) {
          const DeviceId holder = plan_.buffers[buffer].device;
          live[holder] += plan_.buffers[buffer].bytes;
          peak[holder] = std::max(peak[holder], live[holder]);
        }
        peak[device] = std::max(peak[device], live[device]);
        continue;
      }
      live[device] -= plan_.workspace[event.task];
      for (BufferId buffer : plan_.reads[event.task]) {
        if (--left[buffer] == 0) release(buffer);
      }
      for (BufferId buffer : plan_.allocates[event.task]) {
        if (plan_.readers[buffer] == 0) release(buffer);
      }
    }
    return peak;
  }

  void memory() {
    const auto least = replay(true), most = replay(false);
    for (DeviceId device : id_range<DeviceId>(plan_.device_count)) {
      const Bytes peak = result_.peak_bytes[device];
      if (peak < least[device] || peak > most[device]) {
        complain("device {} peaks at {} bytes, a replay at {} to {}", device.value(), peak,
                 least[device], most[device]);
      }
      if (peak > plan_.capacity[device] && result_.feasible()) {
        complain("device {} overflows and the result is called feasible", device.value());
      }
    }
  }

  const Plan& plan_;
  const SimResult& result_;
  OrderPolicy order_;
  IdVector<TaskId, Nanoseconds> ready_;
  std::unordered_set<Nanoseconds> instant_moments_;  // looked up, never walked
  std::vector<std::vector<Use>> uses_;               // of each resource, in order of start
  IdVector<DeviceId, std::map<Nanoseconds, Nanoseconds>> paces_;
  std::vector<std::string> complaints_;
};

}  // namespace

std::vector<std::string> check_timeline(const Plan& plan, const SimResult& result,
                                        OrderPolicy order) {
  return Checker(plan, result, order).check();
}

}  // namespace heterog::sim

// Decision 8 as a textbook has it: a priority queue a resource, and one of events.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

#include "compiler/plan.h"
#include "decide/strategy.h"

namespace heterog::bench {

// Step time and peak memory under rank or FIFO order. A ready task that cannot start waits at the
// first resource that blocks it; when that is free again, its queue is looked at in order.
class TextbookSimulator {
 public:
  TextbookSimulator(const compiler::Plan& plan, decide::OrderPolicy order)
      : plan_(plan),
        fifo_(order == decide::OrderPolicy::kFifo),
        waiting_for_(plan.predecessors),
        references_(plan.readers),
        free_at_(plan.resource_count(), 0),
        ends_(plan.task_count(), 0),
        running_(plan.device_count, TaskId()),
        drag_(plan.device_count, 0),
        pace_(plan.device_count, 0),
        queues_(plan.resource_count()),
        live_(plan.device_count, 0),
        peak_(plan.device_count, 0) {}

  Nanoseconds run() {
    for (DeviceId device : id_range<DeviceId>(plan_.device_count)) {
      live_[device] = peak_[device] = plan_.static_memory[device].total();
    }
    for (TaskId task : plan_.task_ids()) {
      if (waiting_for_[task] == 0) make_ready(task);
    }
    while (true) {
      start_tasks();
      drop_stale();
      if (events_.empty()) return now_;
      if (events_.top().time > now_) {
        settle_paces();
        drop_stale();
      }
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        if (is_stale(event)) continue;
        if (event.resource.valid()) {
          freed_.push_back(event.resource);
        } else {
          end(event.task);
        }
      }
    }
  }
  const IdVector<DeviceId, Bytes>& peak_bytes() const { return peak_; }

 private:
  struct Ready {
    Nanoseconds time = 0;
    std::uint32_t order = 0;
    TaskId task;
    ResourceId from;  // whose queue it heads; invalid: newly ready
    friend bool operator>(const Ready& a, const Ready& b) {
      return std::tie(a.time, a.order) > std::tie(b.time, b.order);
    }
  };
  struct Event {
    Nanoseconds time = 0;
    TaskId task;
    ResourceId resource;  // valid: is free although its task goes on
    friend bool operator>(const Event& a, const Event& b) { return a.time > b.time; }
  };
  template <class T>
  using MinQueue = std::priority_queue<T, std::vector<T>, std::greater<>>;

  void make_ready(TaskId task) {
    fronts_.push({fifo_ ? now_ : 0, plan_.priority[task], task, ResourceId()});
  }

  ResourceId blocked_by(TaskId task) const {
    for (const compiler::Hold& hold : plan_.holds[task]) {
      if (free_at_[hold.resource.value()] > now_) return hold.resource;
    }
    return ResourceId();
  }

  void push_front_of(ResourceId resource) {
    auto& queue = queues_[resource.value()];
    if (queue.empty() || free_at_[resource.value()] > now_) return;
    Ready head = queue.top();
    head.from = resource;
    queue.pop();
    fronts_.push(head);
  }

  void start_tasks() {
    for (ResourceId resource : freed_) push_front_of(resource);
    freed_.clear();
    while (!fronts_.empty()) {
      const Ready ready = fronts_.top();
      fronts_.pop();
      const ResourceId blocker = blocked_by(ready.task);
      if (blocker.valid()) {
        queues_[blocker.value()].push(ready);
      } else {
        start(ready.task);
      }
      if (ready.from.valid()) push_front_of(ready.from);
    }
  }

  void note(DeviceId device) { peak_[device] = std::max(peak_[device], live_[device]); }

  // Its task ends at another time, for its pace has changed.
  bool is_stale(const Event& event) const {
    return event.task.valid() && ends_[event.task] != event.time;
  }
  void end_at(TaskId task, Nanoseconds time) {
    ends_[task] = time;
    events_.push({time, task, ResourceId()});
  }

  void drop_stale() {
    while (!events_.empty() && is_stale(events_.top())) events_.pop();
  }

  // What slows the devices that take part starts (1) or ends (−1).
  void change_drag(TaskId task, int times) {
    if (plan_.drag.empty() || plan_.duration[task] == 0) return;
    for (DeviceId device : plan_.participants[task]) {
      drag_[device] += times * plan_.drag_of(task, device);
      repaced_.push_back(device);
    }
  }

  // At the end of a moment.
  void settle_paces() {
    for (DeviceId device : repaced_) {
      const TaskId running = running_[device];
      if (!running.valid() || pace_[device] == drag_[device]) continue;
      const Nanoseconds left = ends_[running] - now_;
      const Nanoseconds from = 1000 + pace_[device], to = 1000 + drag_[device];
      pace_[device] = drag_[device];
      end_at(running, now_ + (left * to + from - 1) / from);
      free_at_[plan_.compute_stream(device).value()] = ends_[running];
    }
    repaced_.clear();
  }

  void start(TaskId task) {
    const auto holds = plan_.holds[task];
    const DeviceId device = plan_.device[task];
    const bool computes = holds.size() == 1 && holds[0].resource == plan_.compute_stream(device) &&
                          plan_.duration[task] > 0;
    for (const compiler::Hold& hold : plan_.holds[task]) {
      free_at_[hold.resource.value()] = now_ + hold.duration;
      if (hold.duration < plan_.duration[task]) {
        events_.push({now_ + hold.duration, TaskId(), hold.resource});
      }
    }
    live_[plan_.device[task]] += plan_.workspace[task];
    for (BufferId buffer : plan_.allocates[task]) {
      live_[plan_.buffers[buffer].device] += plan_.buffers[buffer].bytes;
      note(plan_.buffers[buffer].device);
    }
    note(plan_.device[task]);
    end_at(task, now_ + plan_.duration[task]);
    if (computes) {
      running_[device] = task;
      pace_[device] = 0;
      repaced_.push_back(device);
    }
    change_drag(task, 1);
  }

  void end(TaskId task) {
    if (running_[plan_.device[task]] == task) running_[plan_.device[task]] = TaskId();
    change_drag(task, -1);
    for (const compiler::Hold& hold : plan_.holds[task]) {
      if (hold.duration == plan_.duration[task]) freed_.push_back(hold.resource);
    }
    live_[plan_.device[task]] -= plan_.workspace[task];
    const auto release = [&](BufferId buffer) {
      live_[plan_.buffers[buffer].device] -= plan_.buffers[buffer].bytes;
    };
    for (BufferId buffer : plan_.reads[task]) {
      if (--references_[buffer] == 0) release(buffer);
    }
    for (BufferId buffer : plan_.allocates[task]) {
      if (plan_.readers[buffer] == 0) release(buffer);
    }
    for (TaskId next : plan_.successors[task]) {
      if (--waiting_for_[next] == 0) make_ready(next);
    }
  }

  const compiler::Plan& plan_;
  const bool fifo_;
  Nanoseconds now_ = 0;
  IdVector<TaskId, std::uint32_t> waiting_for_;
  IdVector<BufferId, std::uint32_t> references_;
  std::vector<Nanoseconds> free_at_;
  IdVector<TaskId, Nanoseconds> ends_;
  IdVector<DeviceId, TaskId> running_;  // on the compute stream
  IdVector<DeviceId, Nanoseconds> drag_, pace_;
  std::vector<DeviceId> repaced_;
  std::vector<MinQueue<Ready>> queues_;
  std::vector<ResourceId> freed_;
  MinQueue<Ready> fronts_;
  MinQueue<Event> events_;
  IdVector<DeviceId, Bytes> live_;
  IdVector<DeviceId, Bytes> peak_;
};

}  // namespace heterog::bench

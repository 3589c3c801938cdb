// Advances from moment to moment: what ends, ends; then what can start, starts.
#include "sim/event_loop.h"

#include <utility>

namespace heterog::sim {

using compiler::Hold;
using compiler::Plan;

namespace {

// What a time at a pace slower by so many thousandths becomes at another such pace, rounded up.
Nanoseconds at_pace(Nanoseconds time, std::int32_t from, std::int32_t to) {
  return (time * (1000 + to) + 999 + from) / (1000 + from);
}

}  // namespace

template <class Queue>
void EventLoop<Queue>::reset(const Plan& plan, const Options& options, SimResult& result) {
  plan_ = &plan;
  result_ = &result;
  options_ = options;
  now_ = 0;
  ended_ = 0;
  prepared_.prepare(plan);
  tasks_ = prepared_.tasks.data();
  buffers_ = prepared_.buffers.data();
  duration_ = plan.duration.raw().data();
  read_rows_ = plan.reads.offsets().data();
  reads_ = plan.reads.values().data();
  successor_rows_ = plan.successors.offsets().data();
  successors_ = plan.successors.values().data();
  tree_.reset(prepared_.streams + 1);
  if (streams_.size() < prepared_.streams) streams_.resize(prepared_.streams);
  drags_ = !plan.drag.empty();
  if (sets_.size() < prepared_.hold_sets.size()) sets_.resize(prepared_.hold_sets.size());
  if (waiting_.size() < plan.resource_count()) waiting_.resize(plan.resource_count());
  for (auto& heap : waiting_) heap.clear();
  free_at_.assign(plan.resource_count(), 0);
  wake_at_.assign(plan.resource_count(), 0);
  live_.assign(plan.device_count, 0);
  overflowed_ = false;

  result.step = 0;
  result.out_of_memory.reset();
  result.peak_bytes.assign(plan.device_count, 0);
  result.device_busy = prepared_.device_busy;
  result.link_busy = prepared_.link_busy;
  result.link_bytes = prepared_.link_bytes;
  result.start.clear();
  result.end.clear();
  result.dispatch.clear();
  if (options.timeline) {
    result.start.assign(plan.task_count(), 0);
    result.end.assign(plan.task_count(), 0);
    result.dispatch.reserve(plan.task_count());
  }
}

template <class Queue>
void EventLoop<Queue>::touch(std::uint32_t stream) {
  if (streams_[stream].touched) return;
  streams_[stream].touched = true;
  touched_.push_back(stream);
}

template <class Queue>
void EventLoop<Queue>::make_ready(std::uint32_t task) {
  const TaskRecord& record = tasks_[task];
  if (record.lane < prepared_.streams) {
    streams_[record.lane].ready.push(now_, record.order, task);
    touch(record.lane);
    return;
  }
  const std::uint32_t set = record.lane - static_cast<std::uint32_t>(prepared_.streams);
  sets_[set].ready.push(now_, record.order, task);
  if (sets_[set].touched) return;
  sets_[set].touched = true;
  touched_sets_.push_back(set);
}

template <class Queue>
void EventLoop<Queue>::note_memory(std::uint32_t device) {
  Bytes& peak = result_->peak_bytes[DeviceId(device)];
  if (live_[device] <= peak) return;
  peak = live_[device];
  if (peak > plan_->capacity[DeviceId(device)] && !result_->out_of_memory) overflowed_ = true;
}

template <class Queue>
void EventLoop<Queue>::take_memory(std::uint32_t task) {
  const std::uint32_t device = tasks_[task].device;
  if (prepared_.any_foreign && prepared_.allocates_foreign[task]) {
    for (BufferId buffer : plan_->allocates[TaskId(task)]) {
      const BufferRecord& record = buffers_[buffer.value()];
      if (record.device == device) continue;
      live_[record.device] += record.bytes;
      note_memory(record.device);
    }
  }
  live_[device] += tasks_[task].take;
  note_memory(device);
}

// Its end will come after that of many others: what it then touches is asked for now.
template <class Queue>
void EventLoop<Queue>::prefetch_end(std::uint32_t task) const {
  for (std::uint32_t i = read_rows_[task]; i < read_rows_[task + 1]; ++i) {
    __builtin_prefetch(&buffers_[reads_[i].value()], 1);
  }
  for (std::uint32_t i = successor_rows_[task]; i < successor_rows_[task + 1]; ++i) {
    __builtin_prefetch(&tasks_[successors_[i].value()], 1);
  }
}

template <class Queue>
void EventLoop<Queue>::note_start(const Key& key) {
  take_memory(key.task);
  prefetch_end(key.task);
  started_.push_back(key);
}

// A stream runs one task. Those that take no time pass beside each other, and what takes time waits
// until they have ended: what they make ready may be more urgent.
template <class Queue>
void EventLoop<Queue>::start_streams() {
  for (std::uint32_t index : touched_) {
    Stream& stream = streams_[index];
    stream.touched = false;
    bool instant = false;
    while (stream.running == kNone && !stream.ready.empty()) {
      const Key key = stream.ready.top();
      const Nanoseconds duration = duration_[key.task];
      if (instant && duration > 0) break;
      stream.ready.pop();
      note_start(key);
      if (duration == 0) {
        instant = true;
        events_.push({now_, key.task});
      } else {
        stream.running = key.task;
        stream.pace = 0;
        if (stream.drag != 0) note_pace(index);
        tree_.set(index, now_ + duration);
      }
    }
  }
  touched_.clear();
  for (std::uint32_t index : stopped_) {
    if (streams_[index].running == kNone) tree_.set(index, kNever);
  }
  stopped_.clear();
}

template <class Queue>
std::uint32_t EventLoop<Queue>::blocking_resource(std::uint32_t set) const {
  for (const Hold& hold : plan_->holds[prepared_.hold_sets[set]]) {
    if (free_at_[hold.resource.value()] > now_) return hold.resource.value();
  }
  return kNone;
}

template <class Queue>
void EventLoop<Queue>::start_of_set(const Key& key) {
  const TaskId task(key.task);
  for (const Hold& hold : plan_->holds[task]) {
    free_at_[hold.resource.value()] = now_ + hold.duration;
  }
  note_start(key);
  events_.push({now_ + duration_[key.task], key.task});
  if (drags_) change_drag(key.task, 1);
}

template <class Queue>
void EventLoop<Queue>::note_pace(std::uint32_t stream) {
  if (std::exchange(streams_[stream].noted, true)) return;
  repaced_.push_back(stream);
}

// A collective or a transfer by kernels starts (1) or ends (−1). One that takes no time changes
// nothing.
template <class Queue>
void EventLoop<Queue>::change_drag(std::uint32_t task, int times) {
  if (duration_[task] == 0) return;
  for (DeviceId device : plan_->participants[TaskId(task)]) {
    const std::int32_t drag = plan_->drag_of(TaskId(task), device);
    const std::uint32_t index = prepared_.compute_stream(device);
    if (drag == 0 || index >= prepared_.streams) continue;
    streams_[index].drag += times * drag;
    note_pace(index);
  }
}

// At the end of a moment: what is left of a task goes on at the pace that its stream has from now.
template <class Queue>
void EventLoop<Queue>::settle_paces() {
  for (std::uint32_t index : repaced_) {
    Stream& stream = streams_[index];
    stream.noted = false;
    if (stream.running == kNone || stream.pace == stream.drag) continue;
    const Nanoseconds left = tree_.at(index) - now_;
    const Nanoseconds takes = at_pace(left, stream.pace, stream.drag);
    stream.pace = stream.drag;
    result_->device_busy[DeviceId(tasks_[stream.running].device)] += takes - left;
    tree_.set(index, now_ + takes);
    if (options_.timeline) result_->end[TaskId(stream.running)] = now_ + takes;
  }
  repaced_.clear();
}

// A release that nobody waits for is no event.
template <class Queue>
void EventLoop<Queue>::wake_when_free(std::uint32_t resource) {
  if (wake_at_[resource] == free_at_[resource]) return;
  wake_at_[resource] = free_at_[resource];
  events_.push({free_at_[resource], resource | kWake});
}

// Starts the first task of a set, or has the set wait at a resource that blocks it.
template <class Queue>
void EventLoop<Queue>::try_front(const Front& front) {
  HoldSet& set = sets_[front.set];
  set.blocked_by = blocking_resource(front.set);
  if (set.blocked_by != kNone) {
    set.first = front.key.task;
    waiting_[set.blocked_by].push({front.key, front.set, set.blocked_by});
    wake_when_free(set.blocked_by);
    return;
  }
  set.ready.pop();
  start_of_set(front.key);
  if (!set.ready.empty()) fronts_.push({set.ready.top(), front.set, kNone});
}

// Sets wait at one resource that blocks them. When it is freed they are looked at again, those of
// all freed resources and those with new tasks merged in order; one that is blocked elsewhere moves
// there. So every task that could start is looked at, in order.
template <class Queue>
void EventLoop<Queue>::start_sets() {
  const auto is_stale = [&](const Front& front) {
    HoldSet& set = sets_[front.set];
    return set.blocked_by != front.from || set.ready.empty() || !(set.ready.top() == front.key);
  };
  const auto put_on_trial = [&](std::uint32_t resource) {
    MinHeap<Front>& heap = waiting_[resource];
    while (!heap.empty() && is_stale(heap.top())) heap.pop();
    if (!heap.empty()) fronts_.push(heap.top());
  };
  for (std::uint32_t index : touched_sets_) {
    HoldSet& set = sets_[index];
    set.touched = false;
    const Front front{set.ready.top(), index, set.blocked_by};
    if (set.blocked_by == kNone) {
      fronts_.push(front);
    } else if (set.first != front.key.task) {  // overtaken
      set.first = front.key.task;
      waiting_[set.blocked_by].push(front);
    }
  }
  touched_sets_.clear();
  for (std::uint32_t resource : freed_) put_on_trial(resource);
  freed_.clear();
  while (!fronts_.empty()) {
    const Front front = fronts_.pop();
    const bool waited = front.from != kNone;
    if (!waited || free_at_[front.from] <= now_) {
      if (!is_stale(front)) try_front(front);
    }
    if (!waited) continue;
    if (free_at_[front.from] > now_) {
      wake_when_free(front.from);  // taken meanwhile: whoever waits there goes on waiting
    } else {
      put_on_trial(front.from);
    }
  }
}

// Plays the starts of this moment again, in order.
template <class Queue>
void EventLoop<Queue>::name_first_that_does_not_fit() {
  std::vector<Bytes> live = live_;
  for (const Key& key : started_) {
    const TaskId task(key.task);
    live[plan_->device[task].value()] -= plan_->workspace[task];
    for (BufferId buffer : plan_->allocates[task]) {
      live[buffers_[buffer.value()].device] -= buffers_[buffer.value()].bytes;
    }
  }
  const auto overflows = [&](std::uint32_t device) {
    return live[device] > plan_->capacity[DeviceId(device)];
  };
  const auto name = [&](std::uint32_t device, const Key& key) {
    result_->out_of_memory = OutOfMemory{DeviceId(device), TaskId(key.task), 0};
  };
  for (const Key& key : started_) {
    const TaskId task(key.task);
    const std::uint32_t own = plan_->device[task].value();
    live[own] += plan_->workspace[task];
    for (BufferId buffer : plan_->allocates[task]) {
      const std::uint32_t device = buffers_[buffer.value()].device;
      live[device] += buffers_[buffer.value()].bytes;
      if (device != own && overflows(device)) return name(device, key);
    }
    if (overflows(own)) return name(own, key);
  }
}

template <class Queue>
void EventLoop<Queue>::end_moment() {
  const bool name_culprit = overflowed_ && !result_->out_of_memory;
  if (options_.timeline || name_culprit) std::sort(started_.begin(), started_.end());
  if (name_culprit) name_first_that_does_not_fit();
  if (options_.timeline) {
    for (const Key& key : started_) {
      const TaskId task(key.task);
      result_->start[task] = now_;
      result_->end[task] = now_ + plan_->duration[task];
      result_->dispatch.push_back(task);
    }
  }
  started_.clear();
}

template <class Queue>
void EventLoop<Queue>::end(std::uint32_t task) {
  ++ended_;
  const TaskId id(task);
  live_[tasks_[task].device] -= tasks_[task].give;
  for (std::uint32_t i = read_rows_[task], end = read_rows_[task + 1]; i < end; ++i) {
    // Without a branch: whether this is the last reader is anyone's guess.
    BufferRecord& record = buffers_[reads_[i].value()];
    const Bytes is_last = --record.references == 0;
    live_[record.device] -= record.bytes & -is_last;
  }
  if (prepared_.any_foreign && prepared_.allocates_foreign[task]) {
    for (BufferId buffer : plan_->allocates[id]) {
      const BufferRecord& record = buffers_[buffer.value()];
      const bool foreign = record.device != tasks_[task].device;
      if (foreign && plan_->readers[buffer] == 0) live_[record.device] -= record.bytes;
    }
  }
  for (std::uint32_t i = successor_rows_[task], end = successor_rows_[task + 1]; i < end; ++i) {
    const std::uint32_t next = successors_[i].value();
    if (--tasks_[next].waiting_for == 0) make_ready(next);
  }
}

template <class Queue>
void EventLoop<Queue>::end_all_at_now() {
  const std::size_t event_slot = prepared_.streams;
  bool has_events = false;
  tree_.for_each_at(now_, [&](std::size_t slot) {
    if (slot == event_slot) {
      has_events = true;
      return;
    }
    stopped_.push_back(static_cast<std::uint32_t>(slot));
  });
  for (std::uint32_t index : stopped_) {
    const std::uint32_t task = streams_[index].running;
    streams_[index].running = kNone;
    touch(index);
    end(task);
  }
  if (!has_events) return;
  while (!events_.empty() && events_.top().time == now_) {
    const Event event = events_.pop();
    if (event.id & kWake) {
      freed_.push_back(event.id & ~kWake);
    } else {
      if (drags_) change_drag(event.id, -1);
      if (tasks_[event.id].lane < prepared_.streams) touch(tasks_[event.id].lane);
      end(event.id);
    }
  }
}

template <class Queue>
void EventLoop<Queue>::run(const Plan& plan, const Options& options, SimResult& result) {
  reset(plan, options, result);
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    live_[device.value()] = plan.static_memory[device].total();
    result.peak_bytes[device] = live_[device.value()];
    if (live_[device.value()] > plan.capacity[device] && !result.out_of_memory) {
      result.out_of_memory = OutOfMemory{device, TaskId(), 0};
    }
  }
  for (std::uint32_t task = 0; task < plan.task_count(); ++task) {
    if (tasks_[task].waiting_for == 0) make_ready(task);
  }
  while (true) {
    start_streams();
    start_sets();
    end_moment();
    const Nanoseconds event = events_.empty() ? kNever : events_.top().time;
    if (event > now_ && !repaced_.empty()) settle_paces();
    if (tree_.at(prepared_.streams) != event) tree_.set(prepared_.streams, event);
    if (tree_.earliest() == kNever) break;
    now_ = tree_.earliest();
    end_all_at_now();
  }
  ENSURE(ended_ == plan.task_count());
  result.step = now_;
}

template class EventLoop<RankQueue>;
template class EventLoop<FifoQueue>;

}  // namespace heterog::sim

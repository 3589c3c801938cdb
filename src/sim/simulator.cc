// The event loop.
#include "sim/simulator.h"

#include <algorithm>
#include <queue>
#include <set>

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::OrderPolicy;
using compiler::Plan;

// Which of two ready tasks goes first: the earlier time (of becoming ready; 0 unless FIFO), then
// the plan's order.
struct Key {
  Nanoseconds time = 0;
  std::uint32_t order = 0;
  TaskId task;
  friend bool operator>(const Key& a, const Key& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
  friend bool operator<(const Key& a, const Key& b) { return b > a; }
};

// A task that ends, or a resource that is released before its task ends.
struct Event {
  Nanoseconds time = 0;
  std::uint32_t id = 0;
  bool release = false;
  friend bool operator>(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.release != b.release) return a.release;
    return a.id > b.id;
  }
};

// A min-heap in a vector that keeps its memory when cleared.
template <class T>
class MinHeap {
 public:
  bool empty() const { return items_.empty(); }
  const T& top() const { return items_.front(); }
  void push(const T& item) {
    items_.push_back(item);
    std::push_heap(items_.begin(), items_.end(), std::greater<>());
  }
  T pop() {
    std::pop_heap(items_.begin(), items_.end(), std::greater<>());
    const T item = items_.back();
    items_.pop_back();
    return item;
  }
  void clear() { items_.clear(); }

 private:
  std::vector<T> items_;
};

// The head of a resource's waiting tasks, while the resource is free.
struct Front {
  Key key;
  std::uint32_t resource = 0;  // kNewlyReady: not waiting anywhere yet
  friend bool operator>(const Front& a, const Front& b) { return a.key > b.key; }
};
constexpr std::uint32_t kNewlyReady = 0xffffffff;

}  // namespace

struct Simulator::Scratch {
  const Plan* plan = nullptr;
  OrderPolicy order = OrderPolicy::kRank;
  bool timeline = false;
  Nanoseconds now = 0;
  std::size_t ended = 0;

  IdVector<TaskId, std::uint32_t> waiting_for;  // predecessors not yet ended
  IdVector<BufferId, std::uint32_t> references;
  std::vector<Nanoseconds> free_at;    // of each resource
  std::vector<MinHeap<Key>> waiting;   // ready tasks, at one resource that blocks them
  std::vector<std::uint32_t> freed;    // resources freed at this moment
  std::vector<std::uint8_t> reserved;  // kRankReserve, at this moment
  std::vector<Key> newly_ready;
  std::set<Key> all_ready;  // kRankReserve only
  MinHeap<Event> events;
  MinHeap<Front> fronts;
  IdVector<DeviceId, Bytes> live;
  SimResult result;

  void reset(const Plan& new_plan, OrderPolicy new_order, bool with_timeline);
  void run();
  void start_static_memory();
  void note_memory(DeviceId device, TaskId task);
  void make_ready(TaskId task);
  std::uint32_t blocking_resource(TaskId task) const;
  void start(TaskId task);
  void end(TaskId task);
  void start_by_rank();
  void start_with_reservations();
  void finish();
};

Simulator::Simulator() : scratch_(std::make_unique<Scratch>()) {}
Simulator::~Simulator() = default;

void Simulator::Scratch::reset(const Plan& new_plan, OrderPolicy new_order, bool with_timeline) {
  plan = &new_plan;
  order = new_order;
  timeline = with_timeline;
  now = 0;
  ended = 0;
  waiting_for = plan->predecessors;
  references = plan->readers;
  free_at.assign(plan->resource_count(), 0);
  waiting.resize(std::max(waiting.size(), plan->resource_count()));
  for (auto& heap : waiting) heap.clear();
  freed.clear();
  reserved.assign(plan->resource_count(), 0);
  newly_ready.clear();
  all_ready.clear();
  events.clear();
  fronts.clear();
  live.assign(plan->device_count, 0);
  result.step = 0;
  result.out_of_memory.reset();
  result.device_busy.assign(plan->device_count, 0);
  result.peak_bytes.assign(plan->device_count, 0);
  result.link_busy.assign(plan->link_count, 0);
  result.link_bytes.assign(plan->link_count, 0);
  result.start.clear();
  result.end.clear();
  result.dispatch.clear();
  if (timeline) {
    result.start.assign(plan->task_count(), 0);
    result.end.assign(plan->task_count(), 0);
    result.dispatch.reserve(plan->task_count());
  }
}

void Simulator::Scratch::note_memory(DeviceId device, TaskId task) {
  Bytes& peak = result.peak_bytes[device];
  if (live[device] <= peak) return;
  peak = live[device];
  if (peak > plan->capacity[device] && !result.out_of_memory) {
    result.out_of_memory = OutOfMemory{device, task, 0};
  }
}

void Simulator::Scratch::start_static_memory() {
  for (DeviceId device : id_range<DeviceId>(plan->device_count)) {
    live[device] = plan->static_memory[device].total();
    note_memory(device, TaskId());
  }
}

void Simulator::Scratch::make_ready(TaskId task) {
  newly_ready.push_back({order == OrderPolicy::kFifo ? now : 0, plan->order[task], task});
}

// A resource that another task holds now; kNewlyReady if there is none.
std::uint32_t Simulator::Scratch::blocking_resource(TaskId task) const {
  for (const Hold& hold : plan->holds[task]) {
    if (free_at[hold.resource.value()] > now) return hold.resource.value();
  }
  return kNewlyReady;
}

void Simulator::Scratch::start(TaskId task) {
  const Nanoseconds duration = plan->duration[task];
  for (const Hold& hold : plan->holds[task]) {
    const std::uint32_t resource = hold.resource.value();
    free_at[resource] = now + hold.duration;
    if (hold.duration < duration) events.push({now + hold.duration, resource, true});
    if (resource < plan->device_count) {
      result.device_busy[DeviceId(resource)] += hold.duration;
    } else if (resource >= 2 * plan->device_count && hold.resource != plan->all_collectives()) {
      const LinkId link(resource - 2 * plan->device_count);
      result.link_busy[link] += hold.duration;
      result.link_bytes[link] += hold.bytes;
    }
  }
  const DeviceId device = plan->device[task];
  live[device] += plan->workspace[task];
  for (BufferId buffer : plan->allocates[task]) {
    const DeviceId holder = plan->buffers[buffer].device;
    live[holder] += plan->buffers[buffer].bytes;
    if (holder != device) note_memory(holder, task);
  }
  note_memory(device, task);
  if (timeline) {
    result.start[task] = now;
    result.end[task] = now + duration;
    result.dispatch.push_back(task);
  }
  events.push({now + duration, task.value(), false});
}

void Simulator::Scratch::end(TaskId task) {
  ++ended;
  for (const Hold& hold : plan->holds[task]) {
    if (hold.duration == plan->duration[task]) freed.push_back(hold.resource.value());
  }
  live[plan->device[task]] -= plan->workspace[task];
  const auto release = [&](BufferId buffer) {
    live[plan->buffers[buffer].device] -= plan->buffers[buffer].bytes;
  };
  for (BufferId buffer : plan->reads[task]) {
    if (--references[buffer] == 0) release(buffer);
  }
  for (BufferId buffer : plan->allocates[task]) {
    if (plan->readers[buffer] == 0) release(buffer);
  }
  for (TaskId next : plan->successors[task]) {
    if (--waiting_for[next] == 0) make_ready(next);
  }
}

// Ready tasks wait at a resource that blocks them. When it is freed its tasks are looked at again,
// all freed resources and newly ready tasks merged in order; one that is blocked elsewhere moves
// there. So every ready task that could start is looked at, in order, and no other.
void Simulator::Scratch::start_by_rank() {
  for (const Key& key : newly_ready) fronts.push({key, kNewlyReady});
  newly_ready.clear();
  std::sort(freed.begin(), freed.end());
  freed.erase(std::unique(freed.begin(), freed.end()), freed.end());
  for (std::uint32_t resource : freed) {
    if (!waiting[resource].empty()) fronts.push({waiting[resource].top(), resource});
  }
  freed.clear();
  while (!fronts.empty()) {
    const Front front = fronts.pop();
    if (front.resource != kNewlyReady) {
      if (free_at[front.resource] > now) continue;  // taken meanwhile: the rest goes on waiting
      waiting[front.resource].pop();
    }
    const std::uint32_t blocked_by = blocking_resource(front.key.task);
    if (blocked_by == kNewlyReady) {
      start(front.key.task);
    } else {
      waiting[blocked_by].push(front.key);
    }
    if (front.resource != kNewlyReady && free_at[front.resource] <= now &&
        !waiting[front.resource].empty()) {
      fronts.push({waiting[front.resource].top(), front.resource});
    }
  }
}

void Simulator::Scratch::start_with_reservations() {
  for (const Key& key : newly_ready) all_ready.insert(key);
  newly_ready.clear();
  freed.clear();
  std::fill(reserved.begin(), reserved.end(), 0);
  for (auto it = all_ready.begin(); it != all_ready.end();) {
    const auto holds = plan->holds[it->task];
    const bool startable = std::all_of(holds.begin(), holds.end(), [&](const Hold& hold) {
      return free_at[hold.resource.value()] <= now && !reserved[hold.resource.value()];
    });
    if (startable) {
      start(it->task);
      it = all_ready.erase(it);
    } else {
      for (const Hold& hold : holds) reserved[hold.resource.value()] = 1;
      ++it;
    }
  }
}

void Simulator::Scratch::run() {
  start_static_memory();
  for (TaskId task : plan->task_ids()) {
    if (waiting_for[task] == 0) make_ready(task);
  }
  while (true) {
    if (order == OrderPolicy::kRankReserve) {
      start_with_reservations();
    } else {
      start_by_rank();
    }
    if (events.empty()) break;
    now = events.top().time;
    while (!events.empty() && events.top().time == now) {
      const Event event = events.pop();
      if (event.release) {
        freed.push_back(event.id);
      } else {
        end(TaskId(event.id));
      }
    }
  }
  ENSURE(ended == plan->task_count());
  finish();
}

void Simulator::Scratch::finish() {
  result.step = now;
  if (result.out_of_memory) {
    const DeviceId device = result.out_of_memory->device;
    result.out_of_memory->missing_bytes = result.peak_bytes[device] - plan->capacity[device];
  }
  result.computation = 0;
  for (Nanoseconds busy : result.device_busy) {
    result.computation = std::max(result.computation, busy);
  }
  result.communication = 0;
  for (Nanoseconds busy : result.link_busy) {
    result.communication = std::max(result.communication, busy);
  }
}

const SimResult& Simulator::simulate(const Plan& plan, OrderPolicy order) {
  scratch_->reset(plan, order, false);
  scratch_->run();
  return scratch_->result;
}

const SimResult& Simulator::simulate_timeline(const Plan& plan, OrderPolicy order) {
  scratch_->reset(plan, order, true);
  scratch_->run();
  return scratch_->result;
}

SimResult simulate(const Plan& plan, OrderPolicy order) {
  Simulator simulator;
  return simulator.simulate_timeline(plan, order);
}

Nanoseconds lower_bound(const Plan& plan) {
  Nanoseconds bound = 0;
  for (TaskId task : plan.task_ids()) bound = std::max(bound, plan.rank[task]);
  std::vector<Nanoseconds> load(plan.resource_count(), 0);
  for (TaskId task : plan.task_ids()) {
    for (const Hold& hold : plan.holds[task]) load[hold.resource.value()] += hold.duration;
  }
  for (Nanoseconds total : load) bound = std::max(bound, total);
  return bound;
}

}  // namespace heterog::sim

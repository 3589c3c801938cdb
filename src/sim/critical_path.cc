// Walks the chain of causes back from the end, and shares out the idle time of devices.
#include "sim/critical_path.h"

#include <algorithm>
#include <tuple>

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::Plan;
using decide::OrderPolicy;

Csr<TaskId, TaskId> predecessors(const Plan& plan) {
  std::vector<std::pair<TaskId, TaskId>> pairs;
  pairs.reserve(plan.successors.size());
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) pairs.emplace_back(next, task);
  }
  return Csr<TaskId, TaskId>::from_pairs(plan.task_count(), pairs);
}

// The end of the last of a task's inputs.
IdVector<TaskId, Nanoseconds> ready_times(const Plan& plan, const SimResult& result) {
  IdVector<TaskId, Nanoseconds> ready(plan.task_count(), 0);
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      ready[next] = std::max(ready[next], result.end[task]);
    }
  }
  return ready;
}

// A task that holds a resource, for how long.
struct HeldBy {
  TaskId task;
  Nanoseconds end = 0;
};

class Walk {
 public:
  Walk(const Plan& plan, const SimResult& result, OrderPolicy order)
      : plan_(plan),
        result_(result),
        order_(order),
        before_(predecessors(plan)),
        ready_(ready_times(plan, result)),
        uses_(plan.resource_count()),
        place_(plan.task_count(), 0) {
    for (std::size_t i = 0; i < result.dispatch.size(); ++i) {
      const TaskId task = result.dispatch[i];
      place_[task] = i;
      for (const Hold& hold : plan.holds[task]) {
        uses_[hold.resource.value()].push_back({task, held_until(plan, result, task, hold)});
      }
    }
  }

  std::vector<Segment> path() const {
    std::vector<Segment> segments;
    if (result_.dispatch.empty()) return segments;
    TaskId task = last_task();
    Nanoseconds end = result_.step;
    while (task.valid()) {
      Segment segment = explain(task);
      segment.end = end;
      end = segment.begin;
      segments.push_back(segment);
      task = segment.waited_for;
    }
    std::reverse(segments.begin(), segments.end());
    return segments;
  }

 private:
  TaskId last_task() const {
    TaskId last = result_.dispatch.front();
    for (TaskId task : result_.dispatch) {
      if (result_.end[task] > result_.end[last]) last = task;
    }
    return last;
  }
  auto priority(TaskId task) const {
    return std::tuple(order_ == OrderPolicy::kFifo ? ready_[task] : 0, plan_.priority[task]);
  }
  // Of two tasks that end at the same moment the longer one; of equals the one that started first.
  bool rather(TaskId a, TaskId b) const {
    const Nanoseconds length_a = result_.end[a] - result_.start[a];
    const Nanoseconds length_b = result_.end[b] - result_.start[b];
    return std::tuple(length_b, place_[a]) < std::tuple(length_a, place_[b]);
  }

  Segment explain(TaskId task) const {
    Segment segment{.task = task, .begin = result_.start[task], .ready = ready_[task]};
    if (segment.begin == segment.ready) {
      for (TaskId input : before_[task]) {
        if (result_.end[input] != segment.ready) continue;
        if (!segment.waited_for.valid() || rather(input, segment.waited_for)) {
          segment.waited_for = input;
        }
      }
      if (segment.waited_for.valid()) segment.cause = Cause::kInput;
      return segment;
    }
    // What held its resources until now; where that is not seen (a reservation of no time), the
    // last to hold one of them.
    Nanoseconds latest = -1;
    for (const Hold& hold : plan_.holds[task]) {
      // Uses of a resource follow one another, so their ends ascend.
      const std::vector<HeldBy>& uses = uses_[hold.resource.value()];
      auto use = std::partition_point(uses.begin(), uses.end(), [&](const HeldBy& u) {
        return u.end <= segment.begin && place_[u.task] < place_[task];
      });
      while (use != uses.begin() && (--use)->end >= latest) {
        if (use->end == latest && !rather(use->task, segment.waited_for)) continue;
        latest = use->end;
        segment.waited_for = use->task;
        segment.resource = hold.resource;
      }
    }
    ENSURE(segment.waited_for.valid());
    segment.cause =
        priority(segment.waited_for) < priority(task) ? Cause::kResource : Cause::kOvertake;
    return segment;
  }

  const Plan& plan_;
  const SimResult& result_;
  OrderPolicy order_;
  Csr<TaskId, TaskId> before_;
  IdVector<TaskId, Nanoseconds> ready_;
  std::vector<std::vector<HeldBy>> uses_;  // of each resource, in order of start
  IdVector<TaskId, std::size_t> place_;    // in the dispatch
};

Nanoseconds overlap(Nanoseconds a_begin, Nanoseconds a_end, Nanoseconds b_begin,
                    Nanoseconds b_end) {
  return std::max<Nanoseconds>(0, std::min(a_end, b_end) - std::max(a_begin, b_begin));
}

// The task whose end the task waited for: the last of its inputs, of equals the longest.
IdVector<TaskId, TaskId> last_inputs(const Plan& plan, const SimResult& result) {
  IdVector<TaskId, TaskId> last(plan.task_count());
  const auto key = [&](TaskId task) {
    return std::tuple(result.end[task], result.end[task] - result.start[task]);
  };
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      if (!last[next].valid() || key(last[next]) < key(task)) last[next] = task;
    }
  }
  return last;
}

// Two neighbours on a path that one line can tell of.
bool alike(const Plan& plan, TaskId a, TaskId b) {
  const bool moves_a = compiler::is_communication(plan.kind[a]);
  if (moves_a != compiler::is_communication(plan.kind[b])) return false;
  if (plan.device[a] != plan.device[b]) return false;
  if (!moves_a) return true;
  return plan.kind[a] == plan.kind[b] && plan.peer[a] == plan.peer[b] &&
         std::ranges::equal(plan.participants[a], plan.participants[b]);
}

}  // namespace

std::string_view cause_name(Cause cause) {
  switch (cause) {
    case Cause::kNothing:
      return "start";
    case Cause::kInput:
      return "input";
    case Cause::kResource:
      return "resource";
    case Cause::kOvertake:
      return "overtaken";
  }
  return "";
}

std::vector<Segment> critical_path(const Plan& plan, const SimResult& result, OrderPolicy order) {
  return Walk(plan, result, order).path();
}

IdVector<DeviceId, DeviceTime> device_times(const Plan& plan, const SimResult& result) {
  const auto ready = ready_times(plan, result);
  const auto last = last_inputs(plan, result);
  IdVector<DeviceId, DeviceTime> times(plan.device_count);
  IdVector<DeviceId, Nanoseconds> idle_since(plan.device_count, 0);
  for (DeviceTime& time : times) time.waiting_for.assign(plan.device_count, 0);
  // The gap before a task that ends it, by what its last input was doing meanwhile.
  const auto share_gap = [&](DeviceTime& time, DeviceId device, Nanoseconds begin, TaskId task) {
    const Nanoseconds end = result.start[task];
    Nanoseconds rest = end - begin;
    const auto take = [&](Nanoseconds& field, Nanoseconds from, Nanoseconds to) {
      const Nanoseconds part = overlap(begin, end, from, to);
      field += part;
      rest -= part;
    };
    take(time.queued, ready[task], end);
    const TaskId input = last[task];
    DeviceId made_on = device;
    if (input.valid() && compiler::is_communication(plan.kind[input])) {
      take(time.moving, result.start[input], result.end[input]);
      take(time.queued, ready[input], result.start[input]);
      if (last[input].valid()) made_on = plan.device[last[input]];
    } else if (input.valid()) {
      made_on = plan.device[input];
    }
    time.waiting += rest;
    time.waiting_for[made_on] += rest;
  };
  for (TaskId task : result.dispatch) {
    for (const Hold& hold : plan.holds[task]) {
      if (hold.resource.value() >= plan.device_count) continue;
      const DeviceId device(hold.resource.value());
      DeviceTime& time = times[device];
      const Nanoseconds start = result.start[task];
      if (start > idle_since[device]) share_gap(time, device, idle_since[device], task);
      idle_since[device] = held_until(plan, result, task, hold);
      time.computing += idle_since[device] - start;
    }
  }
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    times[device].done = result.step - idle_since[device];
  }
  return times;
}

std::vector<Stretch> fold_path(const Plan& plan, std::span<const Segment> path, std::size_t most) {
  std::vector<Stretch> runs;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0 && alike(plan, path[i - 1].task, path[i].task)) {
      runs.back().last = i + 1;
      runs.back().end = path[i].end;
    } else {
      runs.push_back({i, i + 1, path[i].begin, path[i].end});
    }
  }
  // Runs shorter than a threshold are folded with their short neighbours; the lowest threshold that
  // leaves few enough lines.
  const auto fold = [&](Nanoseconds threshold) {
    std::vector<Stretch> folded;
    bool open = false;  // the last one takes short runs
    for (const Stretch& run : runs) {
      const bool is_short = run.length() < threshold;
      if (is_short && open) {
        folded.back().last = run.last;
        folded.back().end = run.end;
        folded.back().mixed = true;
      } else {
        folded.push_back(run);
      }
      open = is_short;
    }
    return folded;
  };
  if (runs.size() <= most) return runs;
  std::vector<Nanoseconds> lengths;
  for (const Stretch& run : runs) lengths.push_back(run.length() + 1);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  const auto enough = std::partition_point(lengths.begin(), lengths.end() - 1,
                                           [&](Nanoseconds t) { return fold(t).size() > most; });
  return fold(*enough);
}

}  // namespace heterog::sim

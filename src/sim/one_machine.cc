// Heads and tails from longest paths and sets of tasks; Jackson's and Johnson's bounds from these.
#include "sim/one_machine.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <span>
#include <utility>

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::Plan;

// Words of 64 bits that all sets of a plan may take to compute, with what is alike and without, and
// those of one resource to store.
constexpr std::size_t kWordsOfAlike = std::size_t{1} << 24;
constexpr std::size_t kWordsInAll = std::size_t{1} << 26;
constexpr std::size_t kWordsAtOnce = std::size_t{1} << 23;

struct OnResource {
  TaskId task;
  Nanoseconds held = 0;
};
// What holds each resource for any time, by task.
Csr<ResourceId, OnResource> by_resource(const Plan& plan) {
  std::vector<std::pair<ResourceId, OnResource>> pairs;
  for (TaskId task : plan.task_ids()) {
    for (const Hold& hold : plan.holds[task]) {
      if (hold.duration > 0) pairs.push_back({hold.resource, {task, hold.duration}});
    }
  }
  return Csr<ResourceId, OnResource>::from_pairs(plan.resource_count(), pairs);
}

Nanoseconds load(std::span<const OnResource> tasks) {
  Nanoseconds sum = 0;
  for (const OnResource& one : tasks) sum += one.held;
  return sum;
}

// Those with two tasks or more, the busiest first.
std::vector<ResourceId> busiest_first(const Csr<ResourceId, OnResource>& on) {
  std::vector<ResourceId> resources;
  for (std::size_t r = 0; r < on.rows(); ++r) {
    if (on[ResourceId(r)].size() > 1) resources.push_back(ResourceId(r));
  }
  std::stable_sort(resources.begin(), resources.end(),
                   [&](ResourceId a, ResourceId b) { return load(on[a]) > load(on[b]); });
  return resources;
}

// The first of each load and number of tasks, and the others, which are of devices that are alike
// and say the same again; each in the order given.
struct OneOfEach {
  std::vector<ResourceId> first, others;
};
OneOfEach one_of_each(const Csr<ResourceId, OnResource>& on,
                      std::span<const ResourceId> resources) {
  OneOfEach found;
  std::set<std::pair<Nanoseconds, std::size_t>> seen;
  for (ResourceId resource : resources) {
    const bool is_new = seen.emplace(load(on[resource]), on[resource].size()).second;
    (is_new ? found.first : found.others).push_back(resource);
  }
  return found;
}

// The heads of a plan, or of its mirror image, in which everything runs from the end: its heads are
// the plan's tails.
class Heads {
 public:
  Heads(const Plan& plan, const Csr<TaskId, TaskId>& before, bool mirrored)
      : plan_(plan), before_(before), mirrored_(mirrored), head_(plan.task_count(), 0) {}

  IdVector<TaskId, Nanoseconds> compute(const Csr<ResourceId, OnResource>& on) {
    std::size_t spent = 0;
    const auto look_at = [&](std::span<const ResourceId> resources, std::size_t most) {
      for (ResourceId resource : resources) {
        const std::size_t words = plan_.task_count() * words_for(on[resource]);
        if (words > kWordsAtOnce || spent + words > most) continue;
        spent += words;
        count_work_before(on[resource]);
      }
    };
    const OneOfEach resources = one_of_each(on, busiest_first(on));
    look_at(resources.first, kWordsInAll / 2);
    look_at(resources.others, kWordsOfAlike / 2);
    for_each_in_order([&](TaskId task) { follow_chain(task); });
    return std::move(head_);
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static std::size_t words_for(std::span<const OnResource> tasks) {
    return (tasks.size() + 63) / 64;
  }

  template <class Visit>
  void for_each_in_order(Visit visit) {
    const std::size_t tasks = plan_.task_count();
    for (std::size_t i = 0; i < tasks; ++i) visit(TaskId(mirrored_ ? tasks - 1 - i : i));
  }

  void follow_chain(TaskId task) {
    for (TaskId earlier : before_[task]) {
      head_[task] = std::max(head_[task], head_[earlier] + plan_.duration[earlier]);
    }
  }

  // All that comes before a task and holds the resource.
  void count_work_before(std::span<const OnResource> tasks) {
    const std::size_t words = words_for(tasks);
    place_.assign(plan_.task_count(), kNone);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      place_[tasks[i].task] = static_cast<std::uint32_t>(i);
    }
    sets_.assign(plan_.task_count() * words, 0);
    work_.assign(plan_.task_count(), 0);
    least_.assign(plan_.task_count(), std::numeric_limits<Nanoseconds>::max());
    for_each_in_order([&](TaskId task) {
      follow_chain(task);
      // The earlier task that brings most is copied, of the others only what is new is added up.
      TaskId most;
      for (TaskId earlier : before_[task]) {
        if (!most.valid() || work_[earlier] > work_[most]) most = earlier;
      }
      if (!most.valid()) return;
      std::uint64_t* own = &sets_[task.value() * words];
      std::copy_n(&sets_[most.value() * words], words, own);
      work_[task] = work_[most];
      for (TaskId earlier : before_[task]) {
        least_[task] = std::min(least_[task], least_[earlier]);
        if (earlier != most && work_[earlier] > 0) {
          const std::uint64_t* other = &sets_[earlier.value() * words];
          for (std::size_t w = 0; w < words; ++w) {
            std::uint64_t fresh = other[w] & ~own[w];
            own[w] |= fresh;
            for (; fresh != 0; fresh &= fresh - 1) {
              const auto bit = static_cast<std::size_t>(std::countr_zero(fresh));
              work_[task] += tasks[64 * w + bit].held;
            }
          }
        }
        const std::uint32_t place = place_[earlier];
        if (place == kNone) continue;
        const std::uint64_t bit = std::uint64_t{1} << place % 64;
        if ((own[place / 64] & bit) == 0) work_[task] += tasks[place].held;
        own[place / 64] |= bit;
        // In the mirror image a hold comes at the end of its task.
        const Nanoseconds rest = mirrored_ ? plan_.duration[earlier] - tasks[place].held : 0;
        least_[task] = std::min(least_[task], head_[earlier] + rest);
      }
      if (work_[task] > 0) head_[task] = std::max(head_[task], least_[task] + work_[task]);
    });
  }

  const Plan& plan_;
  const Csr<TaskId, TaskId>& before_;
  bool mirrored_;
  IdVector<TaskId, Nanoseconds> head_;
  // Of the resource that is looked at.
  IdVector<TaskId, std::uint32_t> place_;  // among those that hold it
  std::vector<std::uint64_t> sets_;        // a row of bits for each task: what comes before it
  IdVector<TaskId, Nanoseconds> work_;     // how long all of those hold it
  IdVector<TaskId, Nanoseconds> least_;    // and when the first of them can
};

// What of a task's duration is left once it has released the resource.
Nanoseconds rest_of(const Plan& plan, const OnResource& one) {
  return plan.duration[one.task] - one.held;
}

// Whether communication slows a stream: one whose tasks hold something else beside it is not
// slowed.
bool may_be_slowed(const Plan& plan, std::span<const OnResource> on_stream) {
  if (plan.drag.empty()) return false;
  return std::ranges::all_of(on_stream, [&](const OnResource& one) {
    return plan.holds[one.task].size() == 1 && one.held == plan.duration[one.task];
  });
}

// One link or channel fed by the stream of a device.
class FlowShop {
 public:
  FlowShop(const Plan& plan, const Csr<TaskId, TaskId>& before, const Window& window,
           DeviceId device, std::span<const OnResource> on_stream,
           std::span<const OnResource> on_link)
      : plan_(plan),
        before_(before),
        device_(device),
        slowed_(may_be_slowed(plan, on_stream)),
        on_link_(on_link) {
    stream_.assign(plan.task_count(), 0);
    link_.assign(plan.task_count(), 0);
    for (const OnResource& one : on_stream) stream_[one.task] = one.held;
    for (const OnResource& one : on_link) link_[one.task] = one.held;
    least_tail_ = std::numeric_limits<Nanoseconds>::max();
    for (const OnResource& one : on_link) {
      least_tail_ = std::min(least_tail_, window.tail[one.task] + rest_of(plan, one));
    }
  }

  Nanoseconds bound(TaskId last) const {
    const std::vector<std::uint8_t> needed = needed_by(last);
    Nanoseconds sum = link_[last] + least_tail_;
    for (TaskId task : plan_.task_ids()) {
      if (needed[task.value()]) sum += stream_[task];
    }
    const IdVector<TaskId, Nanoseconds> fed = work_for(last, needed);
    for (const OnResource& one : on_link_) {
      if (one.task == last) continue;
      if (needed[one.task.value()]) {
        sum += lost_beside(one);
      } else {
        sum += std::min(fed[one.task] + lost_beside(one), one.held);
      }
    }
    return sum;
  }

 private:
  // What the stream falls behind while this runs: at a slower pace, or standing still.
  Nanoseconds lost_beside(const OnResource& one) const {
    if (!slowed_) return 0;
    const auto members = plan_.participants[one.task];
    if (std::ranges::find(members, device_) == members.end()) return 0;
    constexpr Nanoseconds kRounded = 2;  // a pace that changes in the middle of a task
    const Nanoseconds drag = plan_.drag_of(one.task, device_);
    return std::max<Nanoseconds>(0, one.held * drag / (1000 + drag) - kRounded);
  }

  // What has to end before `last` starts.
  std::vector<std::uint8_t> needed_by(TaskId last) const {
    std::vector<std::uint8_t> needed(plan_.task_count(), 0);
    for (TaskId earlier : before_[last]) needed[earlier.value()] = 1;
    for (std::size_t i = last.value(); i-- > 0;) {
      if (!needed[i]) continue;
      for (TaskId earlier : before_[TaskId(i)]) needed[earlier.value()] = 1;
    }
    return needed;
  }

  // a(i): each other task on the stream counts for one that it feeds, the first found.
  IdVector<TaskId, Nanoseconds> work_for(TaskId last,
                                         const std::vector<std::uint8_t>& needed) const {
    IdVector<TaskId, TaskId> feeds(plan_.task_count(), TaskId());
    IdVector<TaskId, Nanoseconds> work(plan_.task_count(), 0);
    for (std::size_t i = plan_.task_count(); i-- > 0;) {
      const TaskId task(i);
      for (TaskId next : plan_.successors[task]) {
        const bool is_other = link_[next] > 0 && next != last;
        const TaskId fed = is_other ? next : feeds[next];
        if (fed.valid() && (!feeds[task].valid() || fed < feeds[task])) feeds[task] = fed;
      }
      if (!needed[i] && feeds[task].valid()) work[feeds[task]] += stream_[task];
    }
    return work;
  }

  const Plan& plan_;
  const Csr<TaskId, TaskId>& before_;
  DeviceId device_;
  bool slowed_;
  std::span<const OnResource> on_link_;
  IdVector<TaskId, Nanoseconds> stream_;  // how long a task holds it, 0: not at all
  IdVector<TaskId, Nanoseconds> link_;
  Nanoseconds least_tail_ = 0;
};

}  // namespace

Window windows(const Plan& plan) {
  Csr<TaskId, TaskId> predecessors;
  predecessors.assign_transposed(plan.successors, plan.task_count());
  const Csr<ResourceId, OnResource> on = by_resource(plan);
  return {.head = Heads(plan, predecessors, false).compute(on),
          .tail = Heads(plan, plan.successors, true).compute(on)};
}

Nanoseconds jackson(std::vector<Job> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.head < b.head; });
  std::priority_queue<std::pair<Nanoseconds, Nanoseconds>> at_hand;  // tail, work left
  Nanoseconds now = 0, end = 0;
  for (std::size_t i = 0; i < jobs.size() || !at_hand.empty();) {
    if (at_hand.empty()) now = std::max(now, jobs[i].head);
    for (; i < jobs.size() && jobs[i].head <= now; ++i) at_hand.push({jobs[i].tail, jobs[i].work});
    const auto [tail, left] = at_hand.top();
    at_hand.pop();
    const Nanoseconds run = i < jobs.size() ? std::min(left, jobs[i].head - now) : left;
    now += run;
    if (run < left) {
      at_hand.push({tail, left - run});
    } else {
      end = std::max(end, now + tail);
    }
  }
  return end;
}

Nanoseconds one_machine_bound(const Plan& plan, const Window& window) {
  const Csr<ResourceId, OnResource> on = by_resource(plan);
  Nanoseconds bound = 0;
  for (std::size_t r = 0; r < on.rows(); ++r) {
    std::vector<Job> jobs;
    for (const OnResource& one : on[ResourceId(r)]) {
      jobs.push_back({.head = window.head[one.task],
                      .work = one.held,
                      .tail = window.tail[one.task] + rest_of(plan, one)});
    }
    bound = std::max(bound, jackson(std::move(jobs)));
  }
  return bound;
}

Nanoseconds slowed_stream_bound(const Plan& plan, const Window& window) {
  if (plan.drag.empty()) return 0;
  const Csr<ResourceId, OnResource> on = by_resource(plan);
  Nanoseconds bound = 0;
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    const auto stream = on[plan.compute_stream(device)];
    std::vector<OnResource> tasks(stream.begin(), stream.end());
    if (!may_be_slowed(plan, tasks)) continue;
    Nanoseconds collectives = 0;  // that hold the channel, so that there is one at a time
    for (const OnResource& one : on[plan.collective_channel(device)]) {
      const auto members = plan.participants[one.task];
      if (compiler::is_transfer(plan.kind[one.task])) continue;
      if (std::ranges::find(members, device) != members.end()) collectives += one.held;
    }
    const auto tail = [&](const OnResource& one) {
      return window.tail[one.task] + rest_of(plan, one);
    };
    std::ranges::sort(tasks, std::greater<>(), tail);
    const Nanoseconds drag = plan.drag[device].collective;
    // A pace that changes in the middle of a task is rounded to a nanosecond.
    const auto rounded = static_cast<Nanoseconds>(2 * on[plan.collective_channel(device)].size());
    Nanoseconds work = 0, head = std::numeric_limits<Nanoseconds>::max();
    for (const OnResource& one : tasks) {
      work += one.held;
      head = std::min(head, window.head[one.task]);
      const Nanoseconds beside = std::max<Nanoseconds>(0, collectives - head - tail(one));
      const Nanoseconds lost = std::max<Nanoseconds>(0, beside * drag / (1000 + drag) - rounded);
      bound = std::max(bound, head + work + lost + tail(one));
    }
  }
  return bound;
}

Nanoseconds two_machine_bound(const Plan& plan, const Window& window) {
  constexpr std::size_t kStreams = 3, kLast = 2;
  const Csr<ResourceId, OnResource> on = by_resource(plan);
  std::vector<ResourceId> streams, fed;
  bool any_channel = false, any_link = false;
  for (ResourceId resource : busiest_first(on)) {
    const bool is_stream = resource.value() < plan.device_count;
    const bool is_link = !is_stream && resource.value() >= 2 * plan.device_count &&
                         resource != plan.all_collectives();
    if (is_stream && streams.size() < kStreams) streams.push_back(resource);
    if (!is_stream && !std::exchange(is_link ? any_link : any_channel, true)) {
      fed.push_back(resource);
    }
  }
  Csr<TaskId, TaskId> predecessors;
  predecessors.assign_transposed(plan.successors, plan.task_count());
  Nanoseconds bound = 0;
  for (ResourceId link : fed) {
    std::vector<OnResource> last(on[link].begin(), on[link].end());
    std::stable_sort(last.begin(), last.end(), [&](const OnResource& a, const OnResource& b) {
      return window.head[a.task] + a.held > window.head[b.task] + b.held;
    });
    last.resize(std::min(last.size(), kLast));
    for (ResourceId stream : streams) {
      const DeviceId device(stream.value());
      const FlowShop shop(plan, predecessors, window, device, on[stream], on[link]);
      for (const OnResource& one : last) bound = std::max(bound, shop.bound(one.task));
    }
  }
  return bound;
}

}  // namespace heterog::sim

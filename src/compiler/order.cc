// Computes ranks backwards and sorts the tasks by them, with or without queues, or by what a
// planner gives.
#include "compiler/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace heterog::compiler {
namespace {

struct Item {
  std::uint64_t key = 0;
  TaskId task;
};

// What sorting needs, kept by each thread from plan to plan: blocks of this size, allocated and
// freed once a plan, would have the heap gather up its small free blocks each time.
struct Scratch {
  std::vector<Item> items;
  std::vector<Item> other;
};
Scratch& scratch() {
  static thread_local Scratch kept;
  kept.items.clear();
  return kept;
}

// By key, stable: a radix sort, 11 bits at a time. `other` becomes as large as `items`.
void sort_by_key(std::vector<Item>& items, std::vector<Item>& other, std::uint64_t greatest_key) {
  constexpr unsigned kBits = 11;
  constexpr std::uint64_t kMask = (1 << kBits) - 1;
  other.resize(items.size());
  std::array<std::uint32_t, kMask + 1> next;
  for (unsigned shift = 0; shift < std::bit_width(greatest_key); shift += kBits) {
    next.fill(0);
    for (const Item& item : items) ++next[item.key >> shift & kMask];
    std::uint32_t sum = 0;
    for (std::uint32_t& count : next) count = std::exchange(sum, sum + count);
    for (const Item& item : items) other[next[item.key >> shift & kMask]++] = item;
    items.swap(other);
  }
}

// Breaks ties in a way that does not depend on what else the plan holds, as far as can be.
auto tie(const Plan& plan, TaskId t) {
  return std::tuple(plan.op[t], plan.kind[t], plan.device[t], plan.peer[t], plan.begin[t],
                    plan.tensor[t], t);
}

// Priorities by urgency, the greatest first.
void sort_by_urgency(Plan& plan, const IdVector<TaskId, Nanoseconds>& urgency) {
  const std::size_t tasks = plan.task_count();
  Nanoseconds greatest = 0;
  for (Nanoseconds one : urgency) greatest = std::max(greatest, one);
  auto& [sorted, other] = scratch();
  sorted.reserve(tasks);
  for (TaskId task : plan.task_ids()) {
    sorted.push_back({static_cast<std::uint64_t>(greatest - urgency[task]), task});
  }
  sort_by_key(sorted, other, static_cast<std::uint64_t>(greatest));
  for (auto first = sorted.begin(); first != sorted.end();) {
    auto last = first + 1;
    while (last != sorted.end() && last->key == first->key) ++last;
    const auto by_rest = [&](const Item& a, const Item& b) {
      return tie(plan, a.task) < tie(plan, b.task);
    };
    // Mostly the tasks of one op on equal devices, which were compiled in this order.
    if (last - first > 1 && !std::is_sorted(first, last, by_rest)) std::sort(first, last, by_rest);
    first = last;
  }
  plan.priority.assign(tasks, 0);
  for (std::size_t i = 0; i < tasks; ++i) {
    plan.priority[sorted[i].task] = static_cast<std::uint32_t>(i);
  }
}

bool has_overheads(const Plan& plan) {
  const std::size_t tasks = plan.task_count();
  return tasks > 0 && plan.kind[TaskId(tasks - 1)] == TaskKind::kOverhead;
}

// What follows the task takes as long as its successor that takes longest by `urgency`; an overhead
// beside that one is as urgent.
Nanoseconds longest_after(const Plan& plan, TaskId task, bool any_overheads,
                          IdVector<TaskId, Nanoseconds>& urgency) {
  Nanoseconds longest = 0;
  for (TaskId next : plan.successors[task]) longest = std::max(longest, urgency[next]);
  if (any_overheads && is_communication(plan.kind[task])) {
    for (TaskId next : plan.successors[task]) {
      if (plan.kind[next] == TaskKind::kOverhead) urgency[next] = longest;
    }
  }
  return longest;
}

// All tasks by the longest path from the start of the step to theirs: a topological order, in the
// thread's scratch.
const std::vector<Item>& by_earliest_start(const Plan& plan) {
  IdVector<TaskId, Nanoseconds> head(plan.task_count(), 0);
  Nanoseconds greatest = 0;
  auto& [sorted, other] = scratch();
  sorted.reserve(plan.task_count());
  for (TaskId task : plan.task_ids()) {
    sorted.push_back({static_cast<std::uint64_t>(head[task]), task});
    const Nanoseconds end = head[task] + plan.duration[task];
    greatest = std::max(greatest, end);
    for (TaskId next : plan.successors[task]) head[next] = std::max(head[next], end);
  }
  sort_by_key(sorted, other, static_cast<std::uint64_t>(greatest));
  return sorted;
}

void compute_ranks(Plan& plan) {
  plan.rank.assign(plan.task_count(), 0);
  const bool any_overheads = has_overheads(plan);
  for (std::size_t i = plan.task_count(); i-- > 0;) {
    const TaskId task(i);
    plan.rank[task] = plan.duration[task] + longest_after(plan, task, any_overheads, plan.rank);
  }
}

void spread_pushes(Plan& plan) {
  struct Push {
    TaskId task;
    std::uint32_t place = 0;  // its priority
    std::size_t pair = 0;
    Nanoseconds before = 0;  // of the pair's time
    double part = 0;
    std::size_t turn = 0;  // pairs take turns by how far apart their devices are
  };
  std::vector<Push> pushes;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kPush) continue;
    const std::size_t from = plan.peer[task].value(), to = plan.device[task].value();
    pushes.push_back({.task = task,
                      .place = plan.priority[task],
                      .pair = from * plan.device_count + to,
                      .turn = (to + plan.device_count - from) % plan.device_count});
  }
  if (pushes.empty()) return;
  std::ranges::sort(pushes, {}, &Push::place);
  std::vector<Nanoseconds> of_pair(plan.device_count * plan.device_count, 0);
  std::vector<std::uint32_t> places;
  for (Push& push : pushes) {
    places.push_back(push.place);
    push.before = of_pair[push.pair];
    of_pair[push.pair] += plan.duration[push.task];
  }
  for (Push& push : pushes) {
    const auto all = static_cast<double>(std::max<Nanoseconds>(1, of_pair[push.pair]));
    push.part = static_cast<double>(push.before) / all;
  }
  std::ranges::stable_sort(pushes, [](const Push& a, const Push& b) {
    return std::tuple(a.part, a.turn) < std::tuple(b.part, b.turn);
  });
  for (std::size_t i = 0; i < pushes.size(); ++i) plan.priority[pushes[i].task] = places[i];
}

}  // namespace

void set_ranks(Plan& plan) {
  compute_ranks(plan);
  sort_by_urgency(plan, plan.rank);
}

void set_queued_priorities(Plan& plan) {
  IdVector<TaskId, Nanoseconds> queued(plan.task_count(), 0);
  std::vector<Nanoseconds> taken(plan.resource_count(), 0);  // from so long before the end on
  const auto queues = [&](const Hold& hold) { return hold.resource.value() >= plan.device_count; };
  const bool any_overheads = has_overheads(plan);
  const std::vector<Item>& sorted = by_earliest_start(plan);
  for (std::size_t i = sorted.size(); i-- > 0;) {
    const TaskId task = sorted[i].task;
    Nanoseconds before_end = plan.duration[task] + longest_after(plan, task, any_overheads, queued);
    for (const Hold& hold : plan.holds[task]) {
      if (!queues(hold)) continue;
      before_end = std::max(before_end, taken[hold.resource.value()] + hold.duration);
    }
    for (const Hold& hold : plan.holds[task]) {
      if (queues(hold)) taken[hold.resource.value()] = before_end;
    }
    queued[task] = before_end;
  }
  sort_by_urgency(plan, queued);
  spread_pushes(plan);
}

namespace {

constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::min();

// What the planner says of compute and update tasks; kLast of all others.
IdVector<TaskId, std::int64_t> given_priorities(const Plan& plan,
                                                std::span<const decide::OpPriority> priorities) {
  std::size_t ops = 0;
  for (const decide::OpPriority& one : priorities)
    ops = std::max(ops, one.op.value() + std::size_t{1});
  for (OpId op : plan.op) ops = op.valid() ? std::max(ops, op.value() + std::size_t{1}) : ops;
  // [op][instance]; what is not named runs at 0, or last if it is an update.
  IdVector<OpId, std::vector<std::optional<std::int64_t>>> given(ops);
  for (const decide::OpPriority& one : priorities) {
    auto& of_op = given[one.op];
    if (of_op.size() <= one.instance) of_op.resize(one.instance + 1);
    of_op[one.instance] = one.priority;
  }
  IdVector<TaskId, std::int64_t> priority(plan.task_count(), kLast);
  IdVector<OpId, std::uint32_t> instances(ops, 0);
  for (TaskId task : plan.task_ids()) {
    const bool computes = plan.kind[task] == TaskKind::kCompute;
    if (!computes && plan.kind[task] != TaskKind::kUpdate) continue;
    const std::uint32_t instance = instances[plan.op[task]]++;
    const auto& of_op = given[plan.op[task]];
    if (instance < of_op.size() && of_op[instance]) {
      priority[task] = *of_op[instance];
    } else if (computes) {
      priority[task] = 0;
    }
  }
  return priority;
}

bool runs_an_op(TaskKind kind) { return kind == TaskKind::kCompute || kind == TaskKind::kUpdate; }

bool serves_its_producers(TaskKind kind) {
  return kind == TaskKind::kPush || kind == TaskKind::kOverhead || is_sum(kind) ||
         is_collective(kind);
}

bool serves_its_readers(TaskKind kind) {
  return kind == TaskKind::kTransfer || kind == TaskKind::kMerge;
}

// Priorities by key, the greatest first; of equals by rank, as set_ranks has put them.
void sort_by_given(Plan& plan, const IdVector<TaskId, std::int64_t>& key) {
  constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
  std::int64_t least = kGreatest, greatest = kLast;
  for (std::int64_t one : key) {
    if (one != kLast) least = std::min(least, one);
    greatest = std::max(greatest, one);
  }
  // Without sign, differences cannot overflow: kLast is not among those that `least` is of.
  const auto below = [&](std::int64_t one) {
    return static_cast<std::uint64_t>(greatest) - static_cast<std::uint64_t>(one);
  };
  const std::uint64_t last = greatest == kLast ? 0 : below(least) + 1;
  auto& [sorted, other] = scratch();
  sorted.resize(plan.task_count());
  for (TaskId task : plan.task_ids()) {
    sorted[plan.priority[task]] = {key[task] == kLast ? last : below(key[task]), task};
  }
  sort_by_key(sorted, other, last);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    plan.priority[sorted[i].task] = static_cast<std::uint32_t>(i);
  }
}

}  // namespace

void set_priorities(Plan& plan, std::span<const decide::OpPriority> priorities) {
  IdVector<TaskId, std::int64_t> key = given_priorities(plan, priorities);
  // Forwards: what is made of partial values, by way of the transfers that bring them.
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      const TaskKind kind = plan.kind[next];
      if (serves_its_producers(kind) || kind == TaskKind::kTransfer) {
        key[next] = std::max(key[next], key[task]);
      }
    }
  }
  // Backwards: what brings a value to readers; what only a sum reads keeps what it has.
  for (std::size_t i = plan.task_count(); i-- > 0;) {
    const TaskId task(i);
    if (!serves_its_readers(plan.kind[task])) continue;
    std::int64_t most = kLast;
    for (TaskId next : plan.successors[task]) {
      const TaskKind kind = plan.kind[next];
      if (runs_an_op(kind) || serves_its_readers(kind)) most = std::max(most, key[next]);
    }
    if (most != kLast) key[task] = most;
  }
  sort_by_given(plan, key);
}

void set_order(Plan& plan, decide::OrderPolicy order,
               std::span<const decide::OpPriority> priorities) {
  if (order == decide::OrderPolicy::kRankQueued) {
    compute_ranks(plan);
    set_queued_priorities(plan);
  } else {
    set_ranks(plan);
  }
  if (!priorities.empty()) set_priorities(plan, priorities);
}

}  // namespace heterog::compiler

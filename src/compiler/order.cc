// Computes ranks backwards and sorts the tasks by them.
#include "compiler/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

namespace heterog::compiler {
namespace {

struct Item {
  std::uint64_t key = 0;  // the greatest rank less its own: ascending keys are descending ranks
  TaskId task;
};

// By key, stable: a radix sort, 11 bits at a time.
void sort_by_key(std::vector<Item>& items, std::uint64_t greatest_key) {
  constexpr unsigned kBits = 11;
  constexpr std::uint64_t kMask = (1 << kBits) - 1;
  std::vector<Item> other(items.size());
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

}  // namespace

void set_ranks(Plan& plan) {
  const std::size_t tasks = plan.task_count();
  plan.rank.assign(tasks, 0);
  Nanoseconds greatest = 0;
  const bool any_overheads = tasks > 0 && plan.kind[TaskId(tasks - 1)] == TaskKind::kOverhead;
  for (std::size_t i = tasks; i-- > 0;) {
    const TaskId task(i);
    Nanoseconds longest = 0;
    for (TaskId next : plan.successors[task]) longest = std::max(longest, plan.rank[next]);
    if (any_overheads && is_communication(plan.kind[task])) {
      for (TaskId next : plan.successors[task]) {
        if (plan.kind[next] == TaskKind::kOverhead) plan.rank[next] = longest;
      }
    }
    plan.rank[task] = plan.duration[task] + longest;
    greatest = std::max(greatest, plan.rank[task]);
  }

  std::vector<Item> sorted;
  sorted.reserve(tasks);
  for (TaskId task : plan.task_ids()) {
    sorted.push_back({static_cast<std::uint64_t>(greatest - plan.rank[task]), task});
  }
  sort_by_key(sorted, static_cast<std::uint64_t>(greatest));
  const auto rest = [&](const Item& item) {
    const TaskId t = item.task;
    return std::tuple(plan.op[t], plan.kind[t], plan.device[t], plan.peer[t], plan.begin[t],
                      plan.tensor[t], t);
  };
  for (auto first = sorted.begin(); first != sorted.end();) {
    auto last = first + 1;
    while (last != sorted.end() && last->key == first->key) ++last;
    const auto by_rest = [&](const Item& a, const Item& b) { return rest(a) < rest(b); };
    // Mostly the tasks of one op on equal devices, which were compiled in this order.
    if (last - first > 1 && !std::is_sorted(first, last, by_rest)) std::sort(first, last, by_rest);
    first = last;
  }
  plan.order.assign(tasks, 0);
  for (std::size_t i = 0; i < tasks; ++i) {
    plan.order[sorted[i].task] = static_cast<std::uint32_t>(i);
  }
}

}  // namespace heterog::compiler

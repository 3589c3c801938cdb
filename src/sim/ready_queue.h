// Tasks that are ready and wait for their turn, by rank order or by the time of becoming ready.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "compiler/plan.h"

namespace heterog::sim {

// Which of two ready tasks goes first: the earlier time (of becoming ready; 0 unless FIFO), then
// the plan's order.
struct Key {
  Nanoseconds time = 0;
  std::uint32_t order = 0;
  std::uint32_t task = 0;
  friend bool operator<(const Key& a, const Key& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }
  friend bool operator>(const Key& a, const Key& b) { return b < a; }
  friend bool operator==(const Key& a, const Key& b) {
    return a.time == b.time && a.order == b.order;
  }
};

// A binary min-heap that keeps its memory when cleared.
template <class T>
class MinHeap {
 public:
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
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

// The ready tasks of a stream or hold set, as EventLoop keeps them, by the plan's order. A task is
// pushed at the moment at which it becomes ready, with its place in the order, and popped when it
// starts:
//
//   queue.push(now, order, task);
//   const Key next = queue.top();
//   queue.pop();
//
// The first task stands beside the heap: along a chain each task is ready alone in front of many
// that can wait, and passes without touching them.
//
//   first_ < rest_: heap of (order << 32 | task)
class RankQueue {
 public:
  bool empty() const { return first_ == kNone && rest_.empty(); }
  void push(Nanoseconds, std::uint32_t order, std::uint32_t task) {
    const std::uint64_t item = std::uint64_t{order} << 32 | task;
    const bool goes_first = first_ != kNone ? item < first_ : rest_.empty() || item < rest_.top();
    if (!goes_first) {
      rest_.push(item);
      return;
    }
    if (first_ != kNone) rest_.push(first_);
    first_ = item;
  }
  Key top() const {
    const std::uint64_t item = first_ != kNone ? first_ : rest_.top();
    return {0, static_cast<std::uint32_t>(item >> 32), static_cast<std::uint32_t>(item)};
  }
  void pop() {
    if (first_ != kNone) {
      first_ = kNone;
    } else {
      rest_.pop();
    }
  }
  void clear() {
    first_ = kNone;
    rest_.clear();
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t first_ = kNone;  // before all of rest_, if there is one
  MinHeap<std::uint64_t> rest_;  // order in the upper half, task in the lower
};

// The same, and used in the same way, by the time of becoming ready, then by the plan's order. Time
// never goes back, so only the tasks of the latest moment are still to be sorted.
//
//   items_: popped ... | head_: sorted ... | moment_: of the latest time, sorted when asked for
class FifoQueue {
 public:
  bool empty() const { return head_ == items_.size(); }
  void push(Nanoseconds time, std::uint32_t order, std::uint32_t task) {
    const Key key{time, order, task};
    if (empty()) {
      clear();
    } else if (items_.back().time != time) {
      settle();
      moment_ = items_.size();
    } else if (key < items_.back()) {
      sorted_ = false;
    }
    items_.push_back(key);
  }
  Key top() {
    settle();
    return items_[head_];
  }
  void pop() {
    settle();
    ++head_;
  }
  void clear() {
    items_.clear();
    head_ = moment_ = 0;
    sorted_ = true;
  }

 private:
  void settle() {
    if (sorted_) return;
    std::sort(items_.begin() + static_cast<std::ptrdiff_t>(std::max(moment_, head_)), items_.end());
    sorted_ = true;
  }
  std::vector<Key> items_;
  std::size_t head_ = 0;
  std::size_t moment_ = 0;  // where the tasks of the latest time begin
  bool sorted_ = true;      // from there on
};

}  // namespace heterog::sim

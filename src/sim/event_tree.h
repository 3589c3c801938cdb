// The earliest of a fixed number of times, each of which changes on its own: a tournament.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.h"

namespace heterog::sim {

inline constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

// Slots 0 … size − 1, all at kNever after reset(). Setting one costs log2(size) comparisons without
// a branch that depends on them.
class EventTree {
 public:
  void reset(std::size_t size) {
    leaves_ = std::bit_ceil(std::max<std::size_t>(size, 2));
    earliest_.assign(2 * leaves_, kNever);
  }
  Nanoseconds earliest() const { return earliest_[1]; }
  Nanoseconds at(std::size_t slot) const { return earliest_[leaves_ + slot]; }
  void set(std::size_t slot, Nanoseconds time) {
    std::size_t node = leaves_ + slot;
    earliest_[node] = time;
    while (node > 1) {
      time = std::min(time, earliest_[node ^ 1]);
      node /= 2;
      earliest_[node] = time;
    }
  }
  // Calls visit(slot) for every slot whose time is `time`, ascending; `time` must be the earliest.
  // The visitor must not set slots.
  template <class Visit>
  void for_each_at(Nanoseconds time, Visit visit) const {
    std::size_t node = 1;
    while (true) {
      if (earliest_[node] == time) {
        if (node < leaves_) {
          node *= 2;
          continue;
        }
        visit(node - leaves_);
      }
      // The next node to the right on this level or above.
      while (node & 1) node /= 2;
      if (node == 0) return;
      ++node;
    }
  }

 private:
  std::size_t leaves_ = 2;
  std::vector<Nanoseconds> earliest_;  // [1] the root; node i has children 2i and 2i + 1
};

}  // namespace heterog::sim

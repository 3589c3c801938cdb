// Draws that moves are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/rng.h"

namespace heterog::search {

// Index drawn in proportion to the steps of `sums`; uniform if they sum to zero.
inline std::size_t draw(const std::vector<double>& sums, Rng& rng) {
  const double total = sums.back();
  if (total <= 0) return rng.below(sums.size());
  const auto it = std::upper_bound(sums.begin(), sums.end(), rng.uniform() * total);
  return std::min<std::size_t>(it - sums.begin(), sums.size() - 1);
}

// 1, 2, 4, … up to `most`, each as likely, then a uniform length between it and the next.
inline std::size_t draw_length(std::size_t most, Rng& rng) {
  std::size_t levels = 1;
  while ((std::size_t{1} << levels) <= most) ++levels;
  const std::size_t low = std::size_t{1} << rng.below(levels);
  return std::min(most, low + rng.below(low));
}

}  // namespace heterog::search

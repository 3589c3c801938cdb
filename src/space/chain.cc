// Paths and the best of them. OptCNN (Jia et al. 2018) finds layers' layouts in this way.
#include "space/chain.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heterog::space {

double score(const Chain& chain, const Path& path) {
  EXPECT(path.size() == chain.groups);
  double sum = 0;
  for (std::size_t n = 0; n < chain.groups; ++n) {
    sum += chain.own[n * chain.rows + path[n]];
    if (n > 0) sum += chain.pair(n, path[n - 1], path[n]);
  }
  return sum;
}

Path best_path(const Chain& chain) {
  const std::size_t rows = chain.rows;
  std::vector<double> best(chain.own.begin(), chain.own.begin() + static_cast<long>(rows)),
      next(rows);
  std::vector<std::uint32_t> before(chain.groups * rows, 0);
  std::vector<std::uint32_t> possible;  // rows of the group before, ascending
  for (std::size_t n = 1; n < chain.groups; ++n) {
    possible.clear();
    for (std::uint32_t a = 0; a < rows; ++a) {
      if (best[a] != kImpossible) possible.push_back(a);
    }
    for (std::size_t b = 0; b < rows; ++b) {
      std::size_t from = 0;
      double most = kImpossible;
      next[b] = kImpossible;
      if (chain.own[n * rows + b] == kImpossible) continue;
      for (const std::size_t a : possible) {
        const double value = best[a] + chain.pair(n, a, b);
        if (value <= most) continue;
        most = value;
        from = a;
      }
      before[n * rows + b] = static_cast<std::uint32_t>(from);
      next[b] = most + chain.own[n * rows + b];
    }
    std::swap(best, next);
  }
  Path path(chain.groups);
  auto at = static_cast<std::uint32_t>(std::ranges::max_element(best) - best.begin());
  for (std::size_t n = chain.groups; n-- > 0;) {
    path[n] = at;
    at = before[n * rows + at];
  }
  return path;
}

}  // namespace heterog::space

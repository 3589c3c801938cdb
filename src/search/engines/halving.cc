// Rounds of local search, each over half as many.
#include "search/engines/halving.h"

#include <algorithm>
#include <bit>

#include "search/engines/local_search.h"
#include "search/starts/starts.h"

namespace heterog::search {

void best_first(std::vector<Start>& starts) {
  std::ranges::stable_sort(starts, [](const Start& a, const Start& b) {
    return better(a.tried.evaluation, b.tried.evaluation);
  });
}

void keep_first(std::vector<Start>& starts, std::size_t most) {
  if (starts.size() <= most) return;
  const auto end = starts.begin() + static_cast<std::ptrdiff_t>(most);
  const auto other = std::ranges::find_if(
      starts, [&](const Start& start) { return start.name != starts.front().name; });
  if (most > 1 && other >= end && other != starts.end()) std::iter_swap(end - 1, other);
  starts.erase(end, starts.end());
}

std::vector<Start> halve(BatchEvaluator& evaluator, std::vector<Start> starts, Rng& rng,
                         double until, bool together) {
  best_first(starts);
  std::size_t going = starts.size();
  while (going > 0) {
    // Rounds that are left, this one among them: 8, 4, 2, 1.
    const auto rounds = static_cast<double>(std::bit_width(going));
    const double now = evaluator.used();
    const double end = now + (until - now) / rounds;
    for (std::size_t i = 0; i < going; ++i) {
      const double here = evaluator.used();
      if (here >= until) break;
      Start& start = starts[i];
      const SearchResult found =
          local_search(evaluator, start.tried.strategy, rng,
                       {.evaluations = kUnbounded,
                        .until = here + (end - here) / static_cast<double>(going - i),
                        .patience = 0,
                        .together = together});
      if (!better(found.evaluation, start.tried.evaluation)) continue;
      start.tried = {found.strategy, found.evaluation};
      if (!start.name.ends_with("local-search")) start.name += " + local-search";
    }
    best_first(starts);
    going /= 2;
  }
  return starts;
}

}  // namespace heterog::search

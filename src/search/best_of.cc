// A few at a time, enough to keep several threads busy.
#include "search/best_of.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heterog::search {

PlannerResult best_of(std::size_t count, const std::function<decide::Strategy(std::size_t)>& make,
                      oracle::Oracle& oracle, const Budget& budget) {
  EXPECT(count > 0);
  constexpr std::size_t kAtATime = 8;
  BatchEvaluator evaluator(oracle, budget);
  PlannerResult best;
  for (std::size_t done = 0; done < count && (done == 0 || !evaluator.spent());) {
    const auto left = static_cast<std::size_t>(
        std::max<std::int64_t>(done == 0 ? 1 : 0, evaluator.evaluations_left()));
    std::vector<decide::Strategy> some;
    const std::size_t end = std::min(count, done + std::min(kAtATime, left));
    for (std::size_t i = done; i < end; ++i) some.push_back(make(i));
    const std::vector<Measured> measured = evaluator.evaluate(some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (done + i > 0 && !better(measured[i].evaluation, best.evaluation)) continue;
      best.strategy = std::move(some[i]);
      best.evaluation = measured[i].evaluation;
    }
    done = end;
  }
  best.evaluations = evaluator.evaluations();
  return best;
}

}  // namespace heterog::search

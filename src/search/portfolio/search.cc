#include "search/portfolio/search.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "search/answers/better_order.h"
#include "search/starts/starts.h"

namespace heterog::search::portfolio {
namespace {

// Of improving the order, whatever the size of the plan.
std::int64_t affordable_rounds(const cost::Problem& problem) {
  return std::max<std::int64_t>(1, one_shot_evaluations(problem) / 32);
}

}  // namespace

void consider(Search& search, const decide::Strategy& strategy, const Evaluation& evaluation,
              const std::string& name) {
  if (search.found && !better(evaluation, search.result.evaluation)) return;
  search.found = true;
  search.result.strategy = strategy;
  search.result.evaluation = evaluation;
  search.result.found_by = name;
  logger().debug("{} plans: {:.6f} s by {}{}", search.evaluator.evaluations(),
                 to_seconds(evaluation.step), name,
                 evaluation.feasible ? "" : ", does not fit in memory");
}

void replace(Search& search, Start& start, Tried with, const char* by) {
  if (!better(with.evaluation, start.tried.evaluation)) return;
  start = {std::move(with), start.name + by};
  consider(search, start.tried.strategy, start.tried.evaluation, start.name);
}

void choose_buckets(Search& search, Start& start, std::span<const Bytes> sizes) {
  if (search.evaluator.spent() || !sums_by_all_reduce(start.tried.strategy)) return;
  const auto left = static_cast<std::size_t>(search.evaluator.evaluations_left());
  sizes = sizes.first(std::min(sizes.size(), left));
  std::vector<decide::Strategy> others(sizes.size(), start.tried.strategy);
  for (std::size_t i = 0; i < sizes.size(); ++i) others[i].bucket_bytes = sizes[i];
  const std::vector<Measured> measured = search.evaluator.evaluate(others);
  Tried best = start.tried;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (better(measured[i].evaluation, best.evaluation)) best = {others[i], measured[i].evaluation};
  }
  replace(search, start, std::move(best), " + buckets");
}

std::vector<std::optional<Tried>> better_orders(const Search& search,
                                                const std::vector<decide::Strategy>& strategies,
                                                std::int64_t rounds) {
  const auto affordable = static_cast<int>(
      std::min({rounds, search.options.order_rounds, affordable_rounds(search.context.problem())}));
  std::vector<std::optional<Tried>> found(strategies.size());
  const PlannerResult& result = search.result;
  search.context.oracle.for_each(strategies.size(), [&](std::size_t i) {
    std::optional<Evaluation> known;
    if (strategies[i] == result.strategy) known = result.evaluation;
    found[i] = better_order(search.context.oracle, strategies[i], affordable, known);
  });
  return found;
}

std::string reordered(std::string name) {
  constexpr std::string_view kReordered = " + order";
  if (!name.ends_with(kReordered)) name += kReordered;
  return name;
}

double plans_in_all(const Search& search) {
  return static_cast<double>(search.evaluator.evaluations()) /
         std::max(search.evaluator.used(), 1e-6);
}

}  // namespace heterog::search::portfolio

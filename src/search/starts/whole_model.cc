// The best of what a rule lists.
#include "search/starts/whole_model.h"

#include <memory>
#include <string_view>

#include "decide/decisions.h"
#include "search/starts/estimated_layouts.h"
#include "space/layout_costs.h"

namespace heterog::search {

namespace {

struct NoOptions {};

using ListStrategies = std::vector<decide::Strategy> (*)(const cost::Problem&);

class BestOfList final : public Planner {
 public:
  explicit BestOfList(ListStrategies list) : list_(list) {}
  PlannerResult plan(PlannerContext& context) const override {
    BatchEvaluator evaluator(context.oracle, context.budget);
    const std::vector<decide::Strategy> strategies = list_(context.problem());
    PlannerResult best;
    // One at a time on large clusters: their plans are large.
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      if (i > 0 && evaluator.spent()) break;
      const Evaluation now = evaluator.evaluate(std::span(strategies).subspan(i, 1))[0].evaluation;
      if (i > 0 && !better(now, best.evaluation)) continue;
      best.strategy = strategies[i];
      best.evaluation = now;
    }
    best.evaluations = evaluator.evaluations();
    return best;
  }

 private:
  ListStrategies list_;
};

std::vector<decide::Strategy> uniform_rows(const cost::Problem& problem) {
  const space::ActionSpace actions(problem, space::ActionTable::kSets);
  std::vector<decide::Strategy> rows;
  for (const space::ActionId row : space::unlike_rows(actions, *problem.cluster)) {
    decide::Strategy strategy = uniform_strategy(problem, actions.decision(row));
    for (const decide::OrderPolicy order : decide::kSearchedOrders) {
      strategy.order = order;
      rows.push_back(strategy);
    }
  }
  return rows;
}

PlannerEntry entry(std::string_view name, std::string_view one_line, ListStrategies list) {
  return planner_entry<NoOptions>(
      name, one_line, {}, [list](const NoOptions&) { return std::make_unique<BestOfList>(list); });
}

}  // namespace

std::vector<PlannerEntry> whole_model_entries() {
  return {entry("estimates", "the best of the layouts that a formula of estimates says",
                estimated_layouts),
          entry("rows", "the best of every set of devices for the whole model", uniform_rows)};
}

}  // namespace heterog::search

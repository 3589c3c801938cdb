// Chains of annealing that does not cool.
#include "search/engines/flexflow.h"

#include <array>
#include <memory>

#include "search/engines/annealing.h"
#include "search/engines/random_search.h"
#include "search/starts/baselines.h"
#include "search/starts/starts.h"

namespace heterog::search {
namespace {

class Flexflow final : public Planner {
 public:
  explicit Flexflow(const FlexflowOptions& options) : options_(options) {}

  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    BatchEvaluator evaluator(context.oracle, budget_or_one_shot(context));
    const space::ActionSpace actions(problem);
    decide::Strategy start = even_all_reduce(problem);
    PlannerResult result{.strategy = start, .evaluation = evaluator.evaluate(start).evaluation};
    std::int64_t chains = 0;
    for (std::int64_t before = -1; !evaluator.spent() && evaluator.evaluations() > before;) {
      before = evaluator.evaluations();
      const SearchResult found = anneal(evaluator, start, context.rng,
                                        {.evaluations = kUnbounded,
                                         .hot = 1 / options_.beta,
                                         .cold = 1 / options_.beta,
                                         .round = 1,
                                         .patience = 0.5});
      ++chains;
      if (better(found.evaluation, result.evaluation)) {
        result.strategy = found.strategy;
        result.evaluation = found.evaluation;
      }
      start = actions.strategy(random_actions(actions, problem.grouping.count(), context.rng));
    }
    result.evaluations = evaluator.evaluations();
    result.refused = evaluator.refused();
    result.found_by = fmt::format("flexflow: {} {}", chains, chains == 1 ? "chain" : "chains");
    return result;
  }

 private:
  FlexflowOptions options_;
};

constexpr std::array<Field<FlexflowOptions>, 1> kFlexflowFields = {
    {{"beta", "a step longer by x of itself is taken with probability exp(-beta x)",
      NumberField<FlexflowOptions>{&FlexflowOptions::beta, {1, 1e9}}}}};

}  // namespace

PlannerEntry flexflow_entry() {
  return planner_entry<FlexflowOptions>(
      "flexflow", "FlexFlow's search: random changes at one temperature, and new starts",
      kFlexflowFields,
      [](const FlexflowOptions& options) { return std::make_unique<Flexflow>(options); });
}

}  // namespace heterog::search

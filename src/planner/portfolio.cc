// The stages, in their order.
#include "planner/portfolio.h"

#include <utility>

#include "planner/portfolio/stages.h"
#include "planner/starts.h"

namespace heterog::planner {
namespace {

// What is kept back of a budget of evaluations is for leaving devices out.
Budget budget_of_stages(const PlannerContext& context, const PortfolioOptions& options) {
  Budget budget = context.budget;
  if (!budget.limited()) {
    budget.evaluations = one_shot_evaluations(context.problem()) + options.pipelines;
  } else if (budget.evaluations) {
    *budget.evaluations -= portfolio::tries_to_leave_out(context);
  }
  return budget;
}

}  // namespace

PlannerResult best_plan(PlannerContext& context, const PortfolioOptions& options) {
  portfolio::Search search{
      .context = context,
      .options = options,
      .evaluator = BatchEvaluator(context.oracle, budget_of_stages(context, options)),
      .costly = evaluations_are_costly(context.problem()),
      .groups = space::summarize_groups(context.problem())};
  portfolio::try_baselines(search);
  // A budget of evaluations that the baselines have used up ends here.
  if (!search.evaluator.spent()) {
    portfolio::try_starts(search);
    portfolio::climb_starts(search);
    portfolio::try_pipelines(search);
    portfolio::improve(search);
    portfolio::leave_devices_out(search);
  }
  search.result.evaluations = search.evaluator.evaluations();
  search.result.refused = search.evaluator.refused();
  portfolio::improve_orders(search);
  return std::move(search.result);
}

}  // namespace heterog::planner

// The planner, and the search that goes on from a plan.
#include "tune/plan_again.h"

#include <utility>

#include "search/portfolio/replan.h"

namespace heterog::tune {

Proposals plan_again(search::PlannerContext& context, const search::Planner& planner,
                     const std::string& planner_name, const decide::Strategy* kept) {
  Proposals proposals;
  const auto add = [&](search::PlannerResult found) {
    if (found.found_by.empty()) found.found_by = planner_name;
    proposals.plans.push_back(
        {std::move(found.strategy), found.evaluation, std::move(found.found_by)});
  };
  if (kept != nullptr) {
    search::PlannerContext from{.oracle = context.oracle, .rng = context.rng};
    search::Replanned again = search::replan(from, {*kept});
    proposals.kept = again.carried;
    add(std::move(again.result));
  }
  add(planner.plan(context));
  if (proposals.plans.size() == 2 &&
      oracle::better(proposals.plans[1].evaluation, proposals.plans[0].evaluation)) {
    std::swap(proposals.plans[0], proposals.plans[1]);
  }
  return proposals;
}

}  // namespace heterog::tune

// Plans by fitted costs: afresh, and from the best plan that was measured.
#pragma once

#include <string>
#include <vector>

#include "decide/strategy.h"
#include "search/planner.h"

namespace heterog::tune {

// A plan that is worth a measurement, by the costs that it was made with.
struct Proposal {
  decide::Strategy strategy;
  oracle::Evaluation evaluation;
  std::string found_by;
};

struct Proposals {
  std::vector<Proposal> plans;  // the best first; at least one
  oracle::Evaluation kept;      // of the plan that was kept, by the same costs; if there is one
};

// `kept`: null before anything was measured; then the planner's plan alone. Else its plan and, from
// the kept one, that of search::replan, which is never worse than it.
Proposals plan_again(search::PlannerContext& context, const search::Planner& planner,
                     const std::string& planner_name, const decide::Strategy* kept);

}  // namespace heterog::tune

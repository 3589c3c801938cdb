// Costs of a problem by what steps of plans took: operators, and links.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compiler/plan.h"
#include "cost/fitted_links.h"
#include "cost/problem.h"
#include "cost/profile.h"
#include "measure/drift.h"
#include "runtime/ranks/records.h"

namespace heterog::tune {

// Steps of a plan, and the costs that it was compiled with.
struct Trial {
  std::shared_ptr<const cost::Problem> problem;
  compiler::Plan plan;
  std::vector<runtime::MeasuredStep> steps;  // at least one
  double seconds = 0;                        // of a step: what plans are compared by
  std::vector<measure::Drift> drift;         // beside what was planned; at least one row
};

struct FittedCosts {
  std::vector<cost::Profile> profiles;  // of the types of which a device ran anything
  cost::FittedLinks links;  // beside those of the believed cluster; with_unseen_expected
  std::size_t flows = 0;    // that they are fitted to; 0: none was measured
  std::shared_ptr<const cost::Problem> problem;
};

// From all trials together, as measure::profile_of_runs and cost::fit_links say, which shrink what
// was not measured, or hardly, towards `believed`. `given`: the profiles that `believed` has costs
// of; they stay those of types that nothing was measured of. Groups stay, so that a strategy means
// the same in both.
FittedCosts fit_costs(const cost::Problem& believed, const std::vector<cost::ProfileSource>& given,
                      std::span<const Trial> trials);

}  // namespace heterog::tune

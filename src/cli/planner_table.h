// Every planner that the program has: the built-in ones, the learned one, and their portfolio.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "planner/planner.h"
#include "planner/portfolio.h"

namespace heterog::cli {

// In the order of docs/design.md §9.
const std::vector<planner::PlannerEntry>& all_planners();

// By name, or "single:DEVICE". Throws an input error that names what exists.
std::unique_ptr<const planner::Planner> find_planner(const std::string& name,
                                                     const cluster::Cluster& cluster);

// The name of what `plan` does unless told otherwise.
inline constexpr std::string_view kPortfolio = "portfolio";

// Samples of the policy in `path` for the problem; the most likely strategy comes first. An empty
// path means the shipped policy; if that is not installed, warns and gives no proposer.
planner::Proposer policy_proposer(const std::string& path, const cost::Problem& problem, Rng rng);

// best_plan with the policy of context.policy_path.
planner::PortfolioResult plan_with_policy(planner::PlannerContext& context);

}  // namespace heterog::cli

// The portfolio with a policy among its proposers, and the table of planners that learn.
#include <array>
#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "policy/api.h"
#include "policy/moves/move_training.h"

namespace heterog::policy {
namespace {

using planner::Field;

constexpr std::array<Field<PortfolioPlannerOptions>, 7> kFields = {
    {{"checkpoint", "the policy that proposes",
      planner::FileField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::checkpoint,
                                                  "the shipped one"}},
     {"proposals", "strategies that the policy gives; 0: plan without it",
      planner::IntegerField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::proposals,
                                                     {0, 10'000}}},
     {"patience", "local search is stuck after so many moves in a row that did not help; 0: never",
      planner::IntegerField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::patience,
                                                     {0, 1'000'000'000}}},
     {"order_rounds", "rounds in which the order of the plan found is improved in the end; 0: none",
      planner::IntegerField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::order_rounds,
                                                     {0, 1'000}}},
     {"pipelines", "pipelines that are tried, with a budget eight times as many; 0: none",
      planner::IntegerField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::pipelines,
                                                     {0, 10'000}}},
     planner::kDrawnField<PortfolioPlannerOptions>,
     {"scorer", "what chooses among moves, made by train --moves",
      planner::FileField<PortfolioPlannerOptions>{&PortfolioPlannerOptions::scorer_file, "none"}}}};

// Path of the policy; nothing if none was named and the shipped one is not installed.
std::optional<std::string> checkpoint_of(const PortfolioPlannerOptions& options) {
  if (!options.checkpoint.empty()) return options.checkpoint;
  try {
    return shipped_policy_path();
  } catch (const Error& error) {
    logger().warn("planning without a policy: {}", error.what());
    return std::nullopt;
  }
}

// Samples of the policy in `path`; the most likely strategy comes first.
planner::Proposer policy_proposer(const std::string& path, Rng rng) {
  logger().info("{}: the policy that proposes", printable(path, 400));
  return [policy = Policy::load(path), rng, calls = 0](oracle::BatchEvaluator& evaluator,
                                                       int count) mutable {
    return propose(policy, evaluator, count - 1, rng.split(calls++));
  };
}

class PortfolioPlanner final : public planner::Planner {
 public:
  explicit PortfolioPlanner(PortfolioPlannerOptions options) : options_(std::move(options)) {}
  planner::PlannerResult plan(planner::PlannerContext& context) const override {
    // A stream of its own: the search draws the same numbers with and without a policy.
    constexpr std::uint64_t kPolicyStream = 0x706f6c;
    planner::Proposer propose;
    const auto path = options_.proposals == 0 ? std::nullopt : checkpoint_of(options_);
    if (path) {
      propose = policy_proposer(*path, context.rng.split(kPolicyStream));
    }
    planner::PortfolioOptions options = options_;
    const auto scorer = planner::make_scorer(
        move_scorers(), {.drawn = options_.drawn, .scorer = options_.scorer_file},
        context.problem());
    options.scorer = scorer.get();
    return planner::best_plan(context, propose, options);
  }

 private:
  PortfolioPlannerOptions options_;
};

}  // namespace

planner::PlannerEntry portfolio_entry() {
  return planner::planner_entry<PortfolioPlannerOptions>(
      "portfolio", "the best of baselines, policy, shares by memory, local search and pipelines",
      kFields, [](const PortfolioPlannerOptions& options) {
        return std::make_unique<PortfolioPlanner>(options);
      });
}

std::vector<planner::PlannerEntry> learned_planners() {
  return {policy_planner_entry(), portfolio_entry()};
}

}  // namespace heterog::policy

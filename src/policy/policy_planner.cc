// The learned planner: proposes, simulates, and keeps improving while there is budget.
#include <algorithm>

#include "planner/baselines.h"
#include "planner/batch_evaluator.h"
#include "planner/candidate.h"
#include "planner/local_search.h"
#include "policy/api.h"

namespace heterog::policy {
namespace {

using planner::BatchEvaluator;
using planner::PlannerContext;
using planner::PlannerResult;

// Draws beside the most likely strategy, from the one forward pass.
constexpr int kProposals = 15;
// Of a budget: the rest is local search around the best strategy.
constexpr double kFinetuneShare = 0.7;

class PolicyPlanner final : public planner::Planner {
 public:
  PlannerResult plan(PlannerContext& context) const override {
    const Policy policy =
        Policy::load(context.policy_path.empty() ? shipped_policy_path() : context.policy_path);
    BatchEvaluator evaluator(context.problem, context.threads, context.compile, context.budget);
    std::vector<compiler::Strategy> strategies =
        propose(policy, context.problem, kProposals, context.rng.split(1));
    for (planner::NamedStrategy& baseline : planner::baseline_strategies(context.problem)) {
      strategies.push_back(std::move(baseline.strategy));
    }
    PlannerResult result;
    const auto measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      consider(result, strategies[i], measured[i].evaluation);
    }
    result.evaluations = evaluator.evaluations();
    improve(policy, context, result);
    return result;
  }

 private:
  static void consider(PlannerResult& result, const compiler::Strategy& strategy,
                       const planner::Evaluation& evaluation) {
    if (result.evaluation.step == 0 || planner::better(evaluation, result.evaluation)) {
      result.strategy = strategy;
      result.evaluation = evaluation;
    }
  }

  static void improve(const Policy& policy, PlannerContext& context, PlannerResult& result) {
    const auto left = [&] {
      return context.budget.evaluations
                 ? std::max<std::int64_t>(*context.budget.evaluations - result.evaluations, 0)
                 : std::int64_t{0};
    };
    if (!context.budget.expired && left() == 0) return;
    planner::Budget learning = context.budget;
    if (context.budget.evaluations) {
      learning.evaluations =
          static_cast<std::int64_t>(kFinetuneShare * static_cast<double>(left()));
    }
    if (!learning.evaluations || *learning.evaluations > 0) {
      FinetuneResult tuned = finetune(policy, context.problem, context.threads,
                                      {.name = context.problem.graph->name(),
                                       .seed = context.rng.split(2)(),
                                       .budget = learning,
                                       .compile = context.compile});
      consider(result, tuned.strategy, tuned.evaluation);
      result.evaluations += tuned.evaluations;
    }
    if (left() > 0) polish(context, result, left());
  }

  static void polish(PlannerContext& context, PlannerResult& result, std::int64_t evaluations) {
    BatchEvaluator evaluator(context.problem, context.threads, context.compile,
                             {.evaluations = evaluations, .expired = context.budget.expired});
    const compiler::Strategy start = planner::to_plain(context.problem, result.strategy);
    Rng rng = context.rng.split(3);
    const planner::SearchResult found =
        planner::local_search(evaluator, start, rng, {.evaluations = evaluations, .patience = 0});
    consider(result, found.strategy, found.evaluation);
    result.evaluations += evaluator.evaluations();
  }
};

std::unique_ptr<const planner::Planner> make_policy_planner() {
  return std::make_unique<PolicyPlanner>();
}

}  // namespace

planner::PlannerEntry policy_planner() {
  return {.name = "policy",
          .one_line = "graph attention and Transformer-XL, pretrained on the zoo (HeteroG)",
          .baseline = false,
          .make = make_policy_planner};
}

}  // namespace heterog::policy

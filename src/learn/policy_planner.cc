// The learned planner: proposes, simulates, and with a budget fine-tunes and searches on.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "decide/micro_batches.h"
#include "learn/api.h"
#include "oracle/batch_evaluator.h"
#include "search/coarse/coarse_pipelines.h"
#include "search/moves/move.h"
#include "search/portfolio/portfolio.h"
#include "search/starts/baselines.h"
#include "search/starts/settle.h"
#include "search/starts/starts.h"
#include "space/action_space.h"

namespace heterog::learn {
namespace {

using search::BatchEvaluator;
using search::PlannerContext;
using search::PlannerResult;

constexpr std::array<std::string_view, 3> kAnswers = {"best", "likely", "searched"};

constexpr std::array<search::Field<PolicyPlannerOptions>, 4> kFields = {
    {{"checkpoint", "the trained policy",
      search::FileField<PolicyPlannerOptions>{&PolicyPlannerOptions::checkpoint,
                                              "the shipped one"}},
     {"proposals", "strategies that are drawn beside the most likely one",
      search::IntegerField<PolicyPlannerOptions>{&PolicyPlannerOptions::proposals, {0, 10'000}}},
     {"finetune_share",
      "share of a budget for fine-tuning; in the rest `plan` goes on from what was found",
      search::NumberField<PolicyPlannerOptions>{&PolicyPlannerOptions::finetune_share, {0, 1}}},
     {"answer",
      "the best of its proposals, of baselines and, with a budget, of what is found from there; or "
      "the best of its ten most likely plans; of a policy that decides every group by itself, its "
      "most likely strategy or one action for all groups; or what `plan` finds with that among its "
      "starts",
      search::choice<PolicyPlannerOptions, &PolicyPlannerOptions::answer>(kAnswers)}}};

// Of answer=likely, by a policy that begins as the formula.
constexpr int kPlansAlone = 10;
constexpr int kProposals = 32;      // of which the most likely are simulated
constexpr int kSettlingRounds = 2;  // of two plans each
constexpr int kSideBySide = 2;      // are simulated before it is asked what fits
// In passes of layers pipelines are looked at where one is at most so much longer than the best.
constexpr double kNearly = 1.15;
constexpr std::size_t kPipelines = 9, kPipelineTasks = 750'000;
constexpr std::int64_t kInPasses = 240;          // plans in passes of layers
constexpr std::uint64_t kClimbingPipelines = 3;  // a stream of random numbers

class PolicyPlanner final : public search::Planner {
 public:
  explicit PolicyPlanner(PolicyPlannerOptions options) : options_(std::move(options)) {}
  PlannerResult plan(PlannerContext& context) const override {
    const Policy policy =
        Policy::load(options_.checkpoint.empty() ? shipped_policy_path() : options_.checkpoint);
    BatchEvaluator evaluator(context.oracle, context.budget);
    if (options_.answer == PolicyAnswer::kLikely) return likely(policy, context, evaluator);
    if (options_.answer == PolicyAnswer::kSearched) return searched(policy, context, evaluator);
    PlannerResult result;
    consider_each(result, evaluator, proposed(policy, context, evaluator));
    if (context.budget.limited()) {
      improve(policy, context, result);
    } else {
      consider_each(result, evaluator, search::baseline_strategies(context.problem()));
    }
    return result;
  }

 private:
  static void note(const decide::Strategy& strategy, const search::Evaluation& evaluation) {
    const decide::UnitDecision& first = strategy.units.raw().front();
    logger().debug(
        "proposed: {} micro-batches{}{}, {}{}, {} units, first on {} devices{}: {:.4f} s{}",
        strategy.micro_batches, strategy.micro_batches > 1 ? " " : "",
        strategy.micro_batches > 1 ? decide::pattern_name(strategy.pattern) : "",
        decide::sync_method_name(first.sync), strategy.sync.empty() ? "" : " of several",
        strategy.units.size(), first.replicas.size(), first.recompute ? ", recomputed" : "",
        to_seconds(evaluation.step), evaluation.feasible ? "" : ", does not fit");
  }

  // Plans as they are said, one after another. But behind one that does not fit comes the next of
  // its kind that by estimate needs less memory, and what needs as much comes after all others.
  class Queue {
   public:
    explicit Queue(std::vector<Proposal> proposed) : proposed_(std::move(proposed)) {}
    bool empty() const { return proposed_.empty(); }
    Proposal next() {
      const auto may_fit = [&](const Proposal& one) { return one.memory_need < least_[kind(one)]; };
      auto at = std::ranges::find_if(proposed_, [&](const Proposal& one) {
        return may_fit(one) && (!instead_ || kind(one) == *instead_);
      });
      if (at == proposed_.end()) at = std::ranges::find_if(proposed_, may_fit);
      if (at == proposed_.end()) at = proposed_.begin();
      instead_.reset();
      Proposal one = std::move(*at);
      proposed_.erase(at);
      return one;
    }
    void did_not_fit(const Proposal& one) {
      least_[kind(one)] = std::min(least_[kind(one)], one.memory_need);
      instead_ = kind(one);
    }

   private:
    static std::size_t kind(const Proposal& one) { return one.strategy.micro_batches > 1 ? 1 : 0; }
    std::vector<Proposal> proposed_;
    std::array<double, 2> least_ = {1e30, 1e30};  // that did not fit: of the batch, of pipelines
    std::optional<std::size_t> instead_;          // of what did not fit
  };

  // Those that are shorter than the best so far in passes of layers, as they are: `plans` at most.
  static std::vector<search::TriedPipelines::One> pipelines_in_passes(PlannerContext& context,
                                                                      BatchEvaluator& evaluator,
                                                                      std::int64_t plans,
                                                                      double best) {
    search::PipelineLimits limits{.count = kPipelines,
                                  .tasks = kPipelineTasks,
                                  .seconds = kNearly * best,
                                  .improved = true,
                                  .all_patterns = false,
                                  .seconds_in_passes = best,
                                  .for_one = kInPasses / plans};
    if (search::evaluations_are_few(context.problem())) limits = search::of_few(limits);
    Rng rng = context.rng.split(kClimbingPipelines);
    const search::Budget before = evaluator.budget();
    evaluator.set_budget(
        {.evaluations = evaluator.evaluations() + plans, .time_used = before.time_used});
    search::TriedPipelines tried = search::try_pipelines_coarsely(evaluator, limits, &rng);
    evaluator.set_budget(before);
    return std::move(tried.all);
  }

  // Six plans as they are said. Where hardly any of them fits, further ones follow. Else at most
  // four more come of them: where a pipeline is the best or nearly so, pipelines that are shorter
  // in passes of layers; and what is then the best has its shares settled, if it is none. What is
  // left of ten are further plans.
  static PlannerResult settled_proposals(const Policy& policy, PlannerContext& context,
                                         BatchEvaluator& evaluator) {
    Queue queue(propose_with_needs(policy, evaluator, kProposals - 1, context.rng));
    PlannerResult result{.found_by = "policy"}, pipeline;
    int fitting = 0;
    const auto try_all = [&](const std::vector<decide::Strategy>& strategies) {
      const auto measured = evaluator.evaluate(strategies);
      for (std::size_t i = 0; i < strategies.size(); ++i) {
        const search::Evaluation& evaluation = measured[i].evaluation;
        note(strategies[i], evaluation);
        fitting += evaluation.feasible ? 1 : 0;
        consider(result, strategies[i], evaluation);
        if (strategies[i].micro_batches > 1) consider(pipeline, strategies[i], evaluation);
      }
      return measured;
    };
    const auto try_next = [&](std::size_t count) {
      std::vector<Proposal> now;
      std::vector<decide::Strategy> strategies;
      for (std::size_t i = 0; i < count && !queue.empty(); ++i) {
        now.push_back(queue.next());
        strategies.push_back(now.back().strategy);
      }
      const auto measured = try_all(strategies);
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (!measured[i].evaluation.feasible) queue.did_not_fit(now[i]);
      }
    };
    for (int i = 0; i < kPlansAlone - 2 * kSettlingRounds; i += kSideBySide) try_next(kSideBySide);
    const double best = to_seconds(result.evaluation.step);
    if (fitting > 1 && pipeline.evaluation.feasible &&
        to_seconds(pipeline.evaluation.step) <= kNearly * best) {
      const int plans = result.strategy.micro_batches > 1 ? 2 * kSettlingRounds : kSettlingRounds;
      for (const auto& one : pipelines_in_passes(context, evaluator, plans, best)) {
        note(one.strategy, one.evaluation);
        consider(result, one.strategy, one.evaluation);
      }
    }
    if (fitting > 1 && result.strategy.micro_batches == 1) {
      const space::GroupSummaries groups =
          space::summarize_groups(search::with_units(context.problem(), result.strategy));
      const auto rounds = static_cast<int>((kPlansAlone - evaluator.evaluations()) / 2);
      const search::Tried settled =
          search::settle(evaluator, groups, {result.strategy, result.evaluation}, rounds);
      if (consider(result, settled.strategy, settled.evaluation)) {
        result.found_by = "policy + shares";
      }
    }
    while (evaluator.evaluations() < kPlansAlone && !queue.empty()) try_next(1);
    result.evaluations = evaluator.evaluations();
    return result;
  }

  // What the policy answers alone is a start of the search, and what it cost is the search's cost.
  static PlannerResult searched(const Policy& policy, PlannerContext& context,
                                BatchEvaluator& evaluator) {
    const PlannerResult alone = likely(policy, context, evaluator);
    if (context.budget.evaluations) {
      context.budget.evaluations =
          std::max<std::int64_t>(0, *context.budget.evaluations - alone.evaluations);
    }
    PlannerResult result =
        search::best_plan(context, {.given = {alone.strategy}, .given_by = alone.found_by});
    result.evaluations += alone.evaluations;
    if (consider(result, alone.strategy, alone.evaluation)) result.found_by = alone.found_by;
    return result;
  }

  // Whole plans as they are said. Of a network that decides every group by itself, a baseline
  // counts at its best order, too, and so does every row of its table for all groups: whoever
  // trusts it alone is not given what one row beats.
  static PlannerResult likely(const Policy& policy, PlannerContext& context,
                              BatchEvaluator& evaluator) {
    if (begins_as_formula(policy.config())) {
      return settled_proposals(policy, context, evaluator);
    }
    PlannerResult result;
    consider_all(result, propose(policy, evaluator, 0, context.rng), evaluator, "policy");
    const space::ActionSpace actions(context.problem(), action_table(policy.config()));
    std::vector<decide::Strategy> rows;
    for (space::ActionId row : actions.ids()) {
      // One device of a type and memory is as good as the next: baselines have one of each.
      if (actions[row].placement == space::Placement::kSingle) continue;
      rows.push_back(uniform_strategy(context.problem(), actions.decision(row)));
    }
    for (search::NamedStrategy& one : search::baseline_strategies(context.problem())) {
      if (one.name == "single") rows.push_back(std::move(one.strategy));
    }
    consider_all(result, rows, evaluator, "one row");
    result.evaluations = evaluator.evaluations();
    return result;
  }

  // A pipeline in other numbers of micro-batches, anything else in other orders and buckets.
  static std::vector<decide::Strategy> variants_of(const cost::Problem& problem,
                                                   const decide::Strategy& strategy) {
    if (strategy.micro_batches == 1) return search::in_other_schedules(strategy);
    std::vector<decide::Strategy> variants;
    for (std::int64_t parts : decide::possible_parts(problem, strategy)) {
      if (parts == strategy.micro_batches) continue;
      variants.push_back(decide::in_pipeline(problem, strategy, parts));
      variants.back().pattern = strategy.pattern;
    }
    return variants;
  }

  // Each as it is and in every other schedule, a strategy at a time: their plans may be large.
  static void consider_all(PlannerResult& result, std::span<const decide::Strategy> strategies,
                           BatchEvaluator& evaluator, const char* name) {
    for (const decide::Strategy& strategy : strategies) {
      std::vector<decide::Strategy> variants = variants_of(evaluator.problem(), strategy);
      variants.insert(variants.begin(), strategy);
      const auto measured = evaluator.evaluate(variants);
      for (std::size_t i = 0; i < variants.size(); ++i) {
        if (consider(result, variants[i], measured[i].evaluation)) result.found_by = name;
      }
    }
  }

  static bool consider(PlannerResult& result, const decide::Strategy& strategy,
                       const search::Evaluation& evaluation) {
    if (result.evaluation.step != 0 && !search::better(evaluation, result.evaluation)) return false;
    result.strategy = strategy;
    result.evaluation = evaluation;
    return true;
  }

  std::vector<search::NamedStrategy> proposed(const Policy& policy, PlannerContext& context,
                                              BatchEvaluator& evaluator) const {
    std::vector<search::NamedStrategy> named;
    for (decide::Strategy& one :
         propose(policy, evaluator, static_cast<int>(options_.proposals), context.rng.split(1))) {
      named.push_back({"policy", std::move(one)});
    }
    return named;
  }

  static void consider_each(PlannerResult& result, BatchEvaluator& evaluator,
                            const std::vector<search::NamedStrategy>& named) {
    std::vector<decide::Strategy> strategies;
    for (const search::NamedStrategy& one : named) strategies.push_back(one.strategy);
    const auto measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (consider(result, strategies[i], measured[i].evaluation)) result.found_by = named[i].name;
    }
    result.evaluations = evaluator.evaluations();
  }

  // Fine-tuning, then what `plan` does with what that has found among its starts, and the rest of
  // the budget.
  void improve(const Policy& policy, PlannerContext& context, PlannerResult& result) const {
    const search::Budget whole = context.budget;
    const auto left = [&] {
      return std::max<std::int64_t>(*whole.evaluations - result.evaluations, 0);
    };
    search::Budget learning = whole;
    if (whole.time_used) {
      learning.time_used = [used = whole.time_used, share = options_.finetune_share] {
        return used() / std::max(1e-9, share);
      };
    }
    if (whole.evaluations) {
      learning.evaluations =
          static_cast<std::int64_t>(options_.finetune_share * static_cast<double>(left()));
    }
    if (learning.evaluations ? *learning.evaluations > 0 : !learning.expired()) {
      FinetuneResult tuned = finetune(policy, context.oracle,
                                      {.name = context.problem().graph->name(),
                                       .seed = context.rng.split(2)(),
                                       .budget = learning});
      if (consider(result, tuned.strategy, tuned.evaluation)) result.found_by = "fine-tuned";
      result.evaluations += tuned.evaluations;
    }
    if (whole.evaluations) context.budget.evaluations = left();
    PlannerResult searched =
        search::best_plan(context, {.given = {result.strategy}, .given_by = result.found_by});
    searched.evaluations += result.evaluations;
    if (consider(searched, result.strategy, result.evaluation)) searched.found_by = result.found_by;
    result = std::move(searched);
  }

  PolicyPlannerOptions options_;
};

}  // namespace

search::PlannerEntry policy_planner_entry() {
  return search::planner_entry<PolicyPlannerOptions>(
      "policy", "a network that begins as a formula, trained by REINFORCE on the zoo (HeteroG)",
      kFields,
      [](const PolicyPlannerOptions& options) { return std::make_unique<PolicyPlanner>(options); });
}

}  // namespace heterog::learn

// Seeds, polish, and the loop that spends what is left of the budget.
#include "planner/portfolio.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "planner/baselines.h"
#include "planner/candidate.h"
#include "planner/local_search.h"
#include "planner/memory_fill.h"
#include "planner/moves.h"
#include "planner/pipeline/pipelines.h"
#include "planner/planner.h"

namespace heterog::planner {

namespace {

using compiler::Strategy;

// Evaluations that a plan without budget spends on local search: so many that plans of any size
// take about the same time. An evaluation takes about half a microsecond an op and device.
std::int64_t one_shot_evaluations(const cost::Problem& problem) {
  std::size_t ops = 0;
  for (OpId op : problem.graph->op_ids()) ops += problem.graph->op(op).alias ? 0 : 1;
  const auto tasks = static_cast<std::int64_t>(ops * problem.cluster->device_count());
  return std::clamp<std::int64_t>(4'000'000 / std::max<std::int64_t>(1, tasks), 24, 600);
}

// What a plan without budget spends on pipelines, in tasks of all their plans.
constexpr std::size_t kPipelineTasks = 1'500'000;
// Estimates of pipelines are wrong by so much at times.
constexpr double kHopeful = 1.1;
constexpr const char* kPipeline = "pipeline";

class Search {
 public:
  Search(PlannerContext& context, const Proposer& propose, const PortfolioOptions& options)
      : context_(context),
        propose_(propose),
        options_(options),
        evaluator_(context.oracle, context.budget) {}

  PlannerResult run() {
    try_baselines();
    // A budget of evaluations that the baselines have used up ends here.
    if (evaluator_.spent()) return finish();
    try_proposals();
    try_fills();
    const std::int64_t polish = one_shot_evaluations(context_.problem());
    rescue(polish / 4);
    climb(start_.strategy, start_.evaluation, start_name_, polish);
    try_pipelines();
    if (context_.budget.evaluations || context_.budget.expired) spend_budget();
    return finish();
  }

 private:
  PlannerResult finish() {
    result_.evaluations = evaluator_.evaluations();
    const std::int64_t rounds = std::min(options_.order_rounds, affordable_rounds());
    const auto found = context_.oracle.improve_order(result_.strategy, static_cast<int>(rounds));
    if (found) consider(found->strategy, found->measured.evaluation, result_.found_by + " + order");
    return std::move(result_);
  }

  // Of improving the order, whatever the size of the plan.
  std::int64_t affordable_rounds() const {
    return std::max<std::int64_t>(1, one_shot_evaluations(context_.problem()) / 8);
  }

  // Keeps the best, and what would be better if it fitted.
  bool consider(const Strategy& strategy, const Evaluation& evaluation, const std::string& name) {
    if (name != kPipeline && (!found_ || better(evaluation, start_.evaluation))) {
      start_ = {strategy, evaluation};
      start_name_ = name;
    }
    if (!evaluation.feasible && name != kPipeline) misfits_.push_back({strategy, evaluation});
    if (found_ && !better(evaluation, result_.evaluation)) return false;
    found_ = true;
    result_.strategy = strategy;
    result_.evaluation = evaluation;
    result_.found_by = name;
    logger().debug("{} plans: {:.6f} s by {}{}", evaluator_.evaluations(),
                   to_seconds(evaluation.step), name,
                   evaluation.feasible ? "" : ", does not fit in memory");
    return true;
  }

  void try_baselines() {
    const std::vector<NamedStrategy> baselines = baseline_strategies(context_.problem());
    std::vector<Strategy> strategies;
    strategies.reserve(baselines.size());
    for (const NamedStrategy& baseline : baselines) strategies.push_back(baseline.strategy);
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    for (std::size_t i = 0; i < baselines.size(); ++i) {
      const Evaluation& evaluation = measured[i].evaluation;
      consider(strategies[i], evaluation, baselines[i].name);
      if (result_.baselines.empty() || result_.baselines.back().name != baselines[i].name) {
        result_.baselines.push_back({baselines[i].name, evaluation});
      } else if (better(evaluation, result_.baselines.back().evaluation)) {
        result_.baselines.back().evaluation = evaluation;
      }
    }
  }

  void try_proposals() {
    if (!propose_) return;
    const std::vector<Strategy> strategies =
        propose_(evaluator_, static_cast<int>(options_.proposals));
    if (strategies.empty()) return;
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    std::vector<Tried> tried;
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      tried.push_back({strategies[i], measured[i].evaluation});
    }
    std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
      return better(a.evaluation, b.evaluation);
    });
    consider_all(tried, "policy");
  }

  // Shares by speed and memory are cheap to try; blocks only where nothing fits yet, or with time.
  void try_fills() {
    // A proposal that fits may be far from what filling memory finds.
    const bool feasible = std::ranges::any_of(
        result_.baselines,
        [](const BaselineResult& baseline) { return baseline.evaluation.feasible; });
    MemoryFillOptions options{.single_block = feasible};
    if (feasible) options.rounds = 2;
    consider_all(memory_fill(evaluator_, options), "memory-fill");
  }

  // `tried`, the best first, and the best of them under every other schedule.
  void consider_all(std::span<const Tried> tried, const std::string& name) {
    constexpr std::size_t kScheduled = 3;
    std::vector<Strategy> variants;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      consider(tried[i].strategy, tried[i].evaluation, name);
      if (i < kScheduled) add_schedules(tried[i].strategy, variants);
    }
    if (variants.empty() || evaluator_.spent()) return;
    const std::vector<Measured> measured = evaluator_.evaluate(variants);
    for (std::size_t i = 0; i < variants.size(); ++i) {
      consider(variants[i], measured[i].evaluation, name);
    }
  }

  // The same decisions in every order, with and without buckets.
  static void add_schedules(const Strategy& strategy, std::vector<Strategy>& variants) {
    for (compiler::OrderPolicy order : compiler::kSearchedOrders) {
      for (Bytes bucket : {Bytes{0}, kHorovodBucketBytes}) {
        if (order == strategy.order && bucket == strategy.bucket_bytes) continue;
        variants.push_back(strategy);
        variants.back().order = order;
        variants.back().priorities.clear();
        variants.back().bucket_bytes = bucket;
      }
    }
  }

  // Local search from `start`; its find becomes the best if it is.
  Tried climb(const Strategy& start, const Evaluation& at_start, const std::string& name,
              std::int64_t evaluations) {
    Strategy plain = to_plain(context_.problem(), start);
    const SearchResult found =
        local_search(evaluator_, plain, context_.rng,
                     {.evaluations = evaluations, .patience = options_.patience});
    const bool helped = better(found.evaluation, at_start);
    const bool again = name.ends_with("local-search");
    consider(found.strategy, found.evaluation, helped && !again ? name + " + local-search" : name);
    return {found.strategy, found.evaluation};
  }

  // Where nothing fits, or what fits waits for the network or for one device after another.
  void try_pipelines() {
    if (evaluator_.spent() || options_.pipelines == 0) return;
    const Evaluation& best = result_.evaluation;
    const std::size_t more = context_.budget.evaluations || context_.budget.expired ? 8 : 1;
    const PipelineLimits limits{.count = more * static_cast<std::size_t>(options_.pipelines),
                                .tasks = more * kPipelineTasks,
                                .seconds = best.feasible ? kHopeful * to_seconds(best.step) : 1e30};
    for (const Tried& tried : planner::try_pipelines(evaluator_, limits)) {
      consider(tried.strategy, tried.evaluation, kPipeline);
    }
  }

  // Strategies that nearly fit and would be faster than the best: local search frees memory first.
  void rescue(std::int64_t evaluations) {
    constexpr std::size_t kRescued = 2;
    std::vector<Tried> misfits = std::move(misfits_);
    std::stable_sort(misfits.begin(), misfits.end(), [](const Tried& a, const Tried& b) {
      return better(a.evaluation, b.evaluation);
    });
    std::size_t rescued = 0;
    for (const Tried& misfit : misfits) {
      const bool worth =
          !result_.evaluation.feasible || misfit.evaluation.step < result_.evaluation.step;
      if (!worth || rescued == kRescued || evaluator_.spent()) continue;
      ++rescued;
      climb(misfit.strategy, misfit.evaluation, "memory-fill", evaluations);
    }
    misfits_.clear();
  }

  // A few moves at once, whatever they cost, to leave a local optimum.
  Strategy kick(const Strategy& strategy) {
    const MoveMaker maker(context_.problem());
    Candidate candidate = to_candidate(to_plain(context_.problem(), strategy));
    const int moves = 1 + static_cast<int>(context_.rng.below(3));
    for (int i = 0; i < moves; ++i) {
      const auto kind = static_cast<MoveKind>(context_.rng.below(kMoveKindCount));
      candidate = apply(candidate, maker.propose(candidate, kind, context_.rng));
    }
    return to_strategy(candidate);
  }

  void spend_budget() {
    constexpr std::int64_t kAll = std::int64_t{1} << 40;
    climb(start_.strategy, start_.evaluation, start_name_, kAll);
    // Nothing new to evaluate for this many rounds: the space is exhausted.
    int stale = 0;
    while (!evaluator_.spent() && stale < 64) {
      const std::int64_t before = evaluator_.evaluations();
      try_proposals();
      const Strategy start = kick(start_.strategy);
      const Evaluation at_start = evaluator_.evaluate(start).evaluation;
      climb(start, at_start, start_name_, kAll);
      stale = evaluator_.evaluations() == before ? stale + 1 : 0;
    }
  }

  PlannerContext& context_;
  const Proposer& propose_;
  PortfolioOptions options_;
  BatchEvaluator evaluator_;
  PlannerResult result_;
  // The best but for pipelines, whose micro-batches local search does not know.
  Tried start_;
  std::string start_name_;
  std::vector<Tried> misfits_;
  bool found_ = false;
};

constexpr std::array<Field<LocalSearchOptions>, 2> kLocalSearchFields = {
    {{"patience", "give up after so many moves in a row that did not help; 0: never",
      IntegerField<LocalSearchOptions>{&LocalSearchOptions::patience, {0, 1'000'000'000}}},
     {"round", "moves that are tried from one plan before the best is taken",
      IntegerField<LocalSearchOptions>{&LocalSearchOptions::round, {1, 4096}}}}};

// From the best baseline or, where none fits, from the best filling of memory.
class LocalSearch final : public Planner {
 public:
  explicit LocalSearch(const LocalSearchOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    Budget budget = context.budget;
    if (!budget.evaluations && !budget.expired) {
      budget.evaluations = one_shot_evaluations(context.problem());
    }
    BatchEvaluator evaluator(context.oracle, budget);
    std::vector<Strategy> strategies;
    for (NamedStrategy& baseline : baseline_strategies(context.problem())) {
      strategies.push_back(std::move(baseline.strategy));
    }
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    std::size_t best = 0;
    for (std::size_t i = 1; i < measured.size(); ++i) {
      if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
    }
    Tried start{strategies[best], measured[best].evaluation};
    if (!start.evaluation.feasible) {
      for (const Tried& tried : memory_fill(evaluator, {})) {
        if (better(tried.evaluation, start.evaluation)) start = tried;
      }
    }
    LocalSearchOptions options = options_;
    options.evaluations = std::int64_t{1} << 40;  // the evaluator keeps the budget
    const SearchResult found = local_search(evaluator, start.strategy, context.rng, options);
    return {.strategy = found.strategy,
            .evaluation = found.evaluation,
            .evaluations = evaluator.evaluations()};
  }

 private:
  LocalSearchOptions options_;
};

}  // namespace

PlannerResult best_plan(PlannerContext& context, const Proposer& propose,
                        const PortfolioOptions& options) {
  return Search(context, propose, options).run();
}

PlannerEntry local_search_entry() {
  return planner_entry<LocalSearchOptions>(
      "local-search", "changes a few groups and keeps what helps", kLocalSearchFields,
      [](const LocalSearchOptions& options) { return std::make_unique<LocalSearch>(options); });
}

}  // namespace heterog::planner

// Seeds, polish, and the loop that spends what is left of the budget.
#include "planner/portfolio.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "planner/annealing.h"
#include "planner/baselines.h"
#include "planner/candidate.h"
#include "planner/estimated_layouts.h"
#include "planner/halving.h"
#include "planner/leave_out.h"
#include "planner/local_search.h"
#include "planner/memory_fill.h"
#include "planner/moves.h"
#include "planner/pipeline/pipelines.h"
#include "planner/planner.h"
#include "planner/settle.h"
#include "planner/starts.h"
#include "planner/sync_split.h"

namespace heterog::planner {

namespace {

using compiler::Strategy;

// What a plan without budget spends on pipelines, in tasks of all their plans.
constexpr std::size_t kPipelineTasks = 1'500'000;
// Estimates of pipelines are wrong by so much at times.
constexpr double kHopeful = 1.1;
constexpr const char* kPipeline = "pipeline";

// Parts of the budget at which the stages end.
constexpr double kHalved = 0.3;
constexpr double kAnnealed = 0.9;
// Of annealing from what climbing has found: half of what serves from a baseline.
constexpr double kHot = 5e-3;
// With less than this budget local search gets further.
constexpr double kPlansToAnneal = 1200;
// Local search gives up after this part of the budget in vain, and after so many plans at least.
constexpr double kTurns = 5;
constexpr std::int64_t kLeastPatience = 24;
// Starts that are climbed from, of each origin.
constexpr std::size_t kStarts = 3;
// That are tried in every order, with and without buckets.
constexpr std::size_t kScheduled = 3;
// Of the policy, where each takes long to simulate.
constexpr std::int64_t kFewProposals = 2;
// Of the starts, the best after climbing, whose synchronisation is split.
constexpr std::size_t kSplit = 3;
// Tried where each takes long.
constexpr Bytes kLargeBucketBytes = Bytes{64} << 20;
// With fewer plans in one shot, pipelines are not tried where something fits.
constexpr std::int64_t kPlansForPipelines = 72;
// Rounds in which samples of a start are moved to devices that wait.
constexpr int kSettling = 4;
// A plan that lacks a hundredth of all memory counts as so many hundredths slower.
constexpr double kMissing = 10;
// Tries to leave devices out are so small a part of a budget.
constexpr std::int64_t kPlansPerTryToLeaveOut = 20;
// On fewer devices a step may be longer by this part of itself before its order is improved.
constexpr double kCatchesUp = 0.01;
// A better order makes the step of a pipeline shorter by up to a fifth.
constexpr double kGainsByOrder = 1.25;
constexpr std::size_t kPipelinesToReorder = 4;
// A pipeline that is so much faster is not caught up with by moves of groups.
constexpr double kFarAhead = 0.85;

class Search {
 public:
  Search(PlannerContext& context, const Proposer& propose, const PortfolioOptions& options)
      : context_(context),
        propose_(propose),
        options_(options),
        evaluator_(context.oracle, budget_of(context, options)) {}

  PlannerResult run() {
    try_baselines();
    // A budget of evaluations that the baselines have used up ends here.
    if (evaluator_.spent()) return finish();
    try_starts();
    climb_starts();
    try_pipelines();
    improve();
    leave_devices_out();
    return finish();
  }

 private:
  // What is kept back of a budget of evaluations is for leave_devices_out().
  static Budget budget_of(const PlannerContext& context, const PortfolioOptions& options) {
    Budget budget = context.budget;
    if (!budget.limited()) {
      budget.evaluations = one_shot_evaluations(context.problem()) + options.pipelines;
    } else if (budget.evaluations) {
      *budget.evaluations -= tries_to_leave_out(context);
    }
    return budget;
  }
  static std::int64_t tries_to_leave_out(const PlannerContext& context) {
    const std::int64_t most = affordable_tries(context.problem());
    if (!context.budget.evaluations) return most;
    return std::min(most, *context.budget.evaluations / kPlansPerTryToLeaveOut);
  }

  // Search moves on where a step gets shorter, and leaves behind what makes no difference: devices
  // with an update of a tenth of a millisecond. What takes a little longer on fewer devices may
  // take no longer in a better order.
  void leave_devices_out() {
    if (!is_plain(result_.strategy)) return;
    const std::int64_t most = tries_to_leave_out(context_);
    auto fewer = leave_out(evaluator_, result_.strategy, result_.evaluation, {.most = most});
    if (fewer) take(*fewer);
    fewer_ = leave_out(evaluator_, result_.strategy, result_.evaluation,
                       {.tolerance = kCatchesUp, .most = most});
  }
  void take(const FewerDevices& fewer) {
    logger().debug("{} plans: {:.6f} s without {} of the devices", evaluator_.evaluations(),
                   to_seconds(fewer.evaluation.step), fewer.left_out.size());
    result_.strategy = fewer.strategy;
    result_.evaluation = fewer.evaluation;
  }

  PlannerResult finish() {
    result_.evaluations = evaluator_.evaluations();
    std::vector<Strategy> strategies = {result_.strategy};
    if (fewer_) strategies.push_back(fewer_->strategy);
    auto better_order = better_orders(strategies);
    if (const auto& found = better_order[0]) {
      consider(found->strategy, found->measured.evaluation, reordered(result_.found_by));
    }
    if (fewer_) {
      const auto& ordered = better_order[1];
      if (ordered) {
        fewer_->strategy = ordered->strategy;
        fewer_->evaluation = ordered->measured.evaluation;
      }
      if (!better(result_.evaluation, fewer_->evaluation)) {
        take(*fewer_);
        if (ordered) result_.found_by = reordered(result_.found_by);
      }
    }
    return std::move(result_);
  }

  // By forward and backward schedules in turns; beside what the budget counts.
  std::vector<std::optional<oracle::BetterOrder>> better_orders(
      const std::vector<Strategy>& strategies) {
    const auto rounds = static_cast<int>(std::min(options_.order_rounds, affordable_rounds()));
    std::vector<std::optional<oracle::BetterOrder>> found(strategies.size());
    context_.oracle.for_each(strategies.size(), [&](std::size_t i) {
      found[i] = context_.oracle.improve_order(strategies[i], rounds);
    });
    return found;
  }

  static std::string reordered(std::string name) {
    constexpr std::string_view kReordered = " + order";
    if (!name.ends_with(kReordered)) name += kReordered;
    return name;
  }

  // Of improving the order, whatever the size of the plan.
  std::int64_t affordable_rounds() const {
    return std::max<std::int64_t>(1, one_shot_evaluations(context_.problem()) / 32);
  }

  void consider(const Strategy& strategy, const Evaluation& evaluation, const std::string& name) {
    if (found_ && !better(evaluation, result_.evaluation)) return;
    found_ = true;
    result_.strategy = strategy;
    result_.evaluation = evaluation;
    result_.found_by = name;
    logger().debug("{} plans: {:.6f} s by {}{}", evaluator_.evaluations(),
                   to_seconds(evaluation.step), name,
                   evaluation.feasible ? "" : ", does not fit in memory");
  }

  void try_baselines() {
    std::vector<NamedStrategy> baselines = baseline_strategies(context_.problem());
    std::vector<Start> tried;
    if (costly_) {
      // In one order each, and the best of them in the others.
      const auto in_others = [](const NamedStrategy& baseline) {
        return baseline.strategy.order != compiler::OrderPolicy::kRankQueued &&
               baseline.strategy.units[UnitId(0)].replicas.size() > 1;
      };
      std::vector<NamedStrategy> first = baselines;
      std::erase_if(first, in_others);
      evaluate_baselines(first, tried);
      const std::string best = std::ranges::min_element(tried, [](const Start& a, const Start& b) {
                                 return better(a.tried.evaluation, b.tried.evaluation);
                               })->name;
      std::erase_if(baselines, [&](const NamedStrategy& baseline) {
        return baseline.name != best || !in_others(baseline);
      });
      add_large_buckets(tried);
    }
    evaluate_baselines(baselines, tried);
    add_starts(std::move(tried));
    if (!result_.evaluation.feasible && !evaluator_.spent()) accumulate();
  }

  // On hundreds of devices what a message costs counts for more than what it waits for.
  void add_large_buckets(std::vector<Start>& tried) {
    std::vector<Strategy> strategies;
    for (const Strategy& plain :
         {even_all_reduce(context_.problem()), proportional_all_reduce(context_.problem())}) {
      strategies.push_back(plain);
      strategies.back().order = compiler::OrderPolicy::kRankQueued;
      strategies.back().bucket_bytes = kLargeBucketBytes;
    }
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      tried.push_back({{strategies[i], measured[i].evaluation}, "large-buckets"});
    }
  }

  void evaluate_baselines(const std::vector<NamedStrategy>& baselines, std::vector<Start>& tried) {
    std::vector<Strategy> strategies;
    strategies.reserve(baselines.size());
    for (const NamedStrategy& baseline : baselines) strategies.push_back(baseline.strategy);
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    for (std::size_t i = 0; i < baselines.size(); ++i) {
      const Evaluation& evaluation = measured[i].evaluation;
      tried.push_back({{strategies[i], evaluation}, baselines[i].name});
      const auto known =
          std::ranges::find(result_.baselines, baselines[i].name, &BaselineResult::name);
      if (known == result_.baselines.end()) {
        result_.baselines.push_back({baselines[i].name, evaluation});
      } else if (better(evaluation, known->evaluation)) {
        known->evaluation = evaluation;
      }
    }
  }

  // What users do where a batch does not fit; local search does not know its micro-batches.
  void accumulate() {
    const std::vector<Tried> tried = try_accumulation(evaluator_);
    if (tried.empty()) return;
    const auto best = std::ranges::min_element(tried, better, &Tried::evaluation);
    result_.baselines.push_back({"accumulate", best->evaluation});
    consider(best->strategy, best->evaluation, "accumulate");
  }

  void try_starts() {
    std::array<std::vector<Start>, 3> origins = {proposals(), estimates(), fills()};
    if (!costly_) add_schedules(origins);
    for (std::vector<Start>& origin : origins) add_starts(std::move(origin));
  }

  std::vector<Start> evaluate_starts(const std::vector<Strategy>& strategies,
                                     const std::string& name) {
    std::vector<Start> tried;
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      tried.push_back({{strategies[i], measured[i].evaluation}, name});
    }
    return tried;
  }

  std::vector<Start> proposals() {
    if (!propose_) return {};
    const std::vector<Strategy> strategies =
        propose_(evaluator_, static_cast<int>(costly_ ? std::min(options_.proposals, kFewProposals)
                                                      : options_.proposals));
    return evaluate_starts(strategies, "policy");
  }

  std::vector<Start> estimates() {
    if (costly_) return {};  // hundreds of devices: they have not won there yet
    return evaluate_starts(estimated_layouts(context_.problem()), "estimate");
  }

  // Shares by speed and memory are cheap to try; blocks only where nothing fits yet.
  std::vector<Start> fills() {
    // A proposal that fits may be far from what filling memory finds.
    const bool feasible = std::ranges::any_of(
        result_.baselines,
        [](const BaselineResult& baseline) { return baseline.evaluation.feasible; });
    MemoryFillOptions options{.single_block = feasible};
    if (feasible) options.rounds = costly_ ? 1 : 2;
    std::vector<Start> tried;
    for (Tried& one : memory_fill(evaluator_, options)) {
      tried.push_back({std::move(one), "memory-fill"});
    }
    return tried;
  }

  // The best few, wherever they are from, in every other order, with and without buckets.
  void add_schedules(std::span<std::vector<Start>> origins) {
    std::vector<Start> best;
    for (const std::vector<Start>& origin : origins) {
      best.insert(best.end(), origin.begin(), origin.end());
    }
    best_first(best);
    if (best.size() > kScheduled) best.resize(kScheduled);
    for (const Start& start : best) {
      if (evaluator_.spent()) return;
      const auto origin = std::ranges::find_if(origins, [&](const std::vector<Start>& one) {
        return !one.empty() && one.front().name == start.name;
      });
      for (Start& other : evaluate_starts(in_other_schedules(start.tried.strategy), start.name)) {
        origin->push_back(std::move(other));
      }
    }
  }

  static std::vector<Strategy> in_other_schedules(const Strategy& strategy) {
    // Buckets are of all-reduces.
    const bool reduces = std::ranges::any_of(strategy.units, [](const auto& unit) {
      return unit.replicas.size() > 1 && unit.sync == compiler::SyncMethod::kAllReduce;
    });
    std::vector<Strategy> variants;
    for (compiler::OrderPolicy order : compiler::kSearchedOrders) {
      for (Bytes bucket : {Bytes{0}, kHorovodBucketBytes}) {
        if (order == strategy.order && bucket == strategy.bucket_bytes) continue;
        if (bucket > 0 && !reduces) continue;
        variants.push_back(strategy);
        variants.back().order = order;
        variants.back().priorities.clear();
        variants.back().bucket_bytes = bucket;
      }
    }
    return variants;
  }

  // The best few of one origin that differ in more than order and buckets, and those that would be
  // faster if they fitted.
  void add_starts(std::vector<Start> tried) {
    best_first(tried);
    std::vector<IdVector<UnitId, compiler::UnitDecision>> taken;
    std::size_t fitting = 0, missing = 0;
    for (Start& start : tried) {
      consider(start.tried.strategy, start.tried.evaluation, start.name);
      Strategy plain = to_plain(context_.problem(), start.tried.strategy);
      const bool fits = start.tried.evaluation.feasible;
      const bool worth = fits || start.tried.evaluation.step < result_.evaluation.step ||
                         !result_.evaluation.feasible;
      std::size_t& count = fits ? fitting : missing;
      if (!worth || count == kStarts || std::ranges::find(taken, plain.units) != taken.end())
        continue;
      ++count;
      taken.push_back(plain.units);
      starts_.push_back(std::move(start));
      starts_.back().tried.strategy = std::move(plain);
    }
  }

  // That the budget will have simulated in the end, as far as it has got until now.
  double plans_in_all() const {
    return static_cast<double>(evaluator_.evaluations()) / std::max(evaluator_.used(), 1e-6);
  }

  // Those that are worth climbing from, as many as the budget climbs from for a while: fast, or
  // fast and short of little memory.
  void choose_starts() {
    constexpr double kPlansPerStart = 48;  // in all rounds of halving
    Bytes memory = 0;
    for (DeviceId device : context_.problem().cluster->device_ids()) {
      memory += context_.problem().cluster->device(device).memory_bytes;
    }
    const auto promise = [&](const Start& start) {
      const Evaluation& evaluation = start.tried.evaluation;
      const double missing =
          static_cast<double>(evaluation.missing_bytes) / static_cast<double>(memory);
      return to_seconds(evaluation.step) * (1 + kMissing * missing);
    };
    std::ranges::stable_sort(starts_, {}, promise);
    const double plans = plans_in_all() * kHalved;
    const auto most = static_cast<std::size_t>(std::max(2.0, plans / kPlansPerStart));
    if (starts_.size() > most) starts_.resize(most);
  }

  void climb_starts() {
    choose_starts();
    for (Start& start : starts_) settle_start(start);
    starts_ = halve(evaluator_, std::move(starts_), context_.rng, kHalved, options_.scorer,
                    options_.drawn);
    split_starts();
    for (const Start& start : starts_) {
      consider(start.tried.strategy, start.tried.evaluation, start.name);
    }
  }

  void settle_start(Start& start) {
    Tried settled = settle(evaluator_, groups_, start.tried, kSettling);
    if (!better(settled.evaluation, start.tried.evaluation)) return;
    start = {std::move(settled), start.name + " + shares"};
    consider(start.tried.strategy, start.tried.evaluation, start.name);
  }

  // Those that are gone on from. Before climbing it would lead astray: over slow networks moves get
  // much further from what is not split.
  void split_starts() {
    for (std::size_t i = 0; i < std::min(starts_.size(), costly_ ? std::size_t{1} : kSplit); ++i) {
      Start& start = starts_[i];
      Tried split = split_syncs(evaluator_, groups_, start.tried, costly_);
      if (!better(split.evaluation, start.tried.evaluation)) continue;
      start = {std::move(split), start.name + " + split"};
      consider(start.tried.strategy, start.tried.evaluation, start.name);
    }
    best_first(starts_);
  }

  // Where nothing fits, or what fits waits for the network or for one device after another.
  void try_pipelines() {
    if (evaluator_.spent() || options_.pipelines == 0) return;
    // A plan in micro-batches has several times the tasks; where even plain ones take long, only a
    // budget pays for it.
    if (!context_.budget.limited() && result_.evaluation.feasible &&
        one_shot_evaluations(context_.problem()) < kPlansForPipelines) {
      return;
    }
    const Evaluation& best = result_.evaluation;
    const std::size_t more = context_.budget.limited() ? 8 : 1;
    const PipelineLimits limits{.count = more * static_cast<std::size_t>(options_.pipelines),
                                .tasks = more * kPipelineTasks,
                                .seconds = best.feasible ? kHopeful * to_seconds(best.step) : 1e30};
    std::vector<Tried> tried = planner::try_pipelines(evaluator_, limits);
    for (const Tried& one : tried) consider(one.strategy, one.evaluation, kPipeline);
    reorder_pipelines(std::move(tried));
  }

  // The fastest of those that a better order may bring before all else: a fifth of a step is gained
  // at times, and the rest of the search has to know. Strict turns are an order already.
  void reorder_pipelines(std::vector<Tried> tried) {
    const Evaluation& best = result_.evaluation;
    const double longest = best.feasible ? kGainsByOrder * to_seconds(best.step) : 1e30;
    std::erase_if(tried, [&](const Tried& one) {
      return !one.evaluation.feasible || !one.strategy.sequence.empty() ||
             to_seconds(one.evaluation.step) > longest;
    });
    std::ranges::stable_sort(tried, better, &Tried::evaluation);
    if (tried.size() > kPipelinesToReorder) tried.resize(kPipelinesToReorder);
    std::vector<Strategy> strategies;
    for (Tried& one : tried) strategies.push_back(std::move(one.strategy));
    for (const auto& found : better_orders(strategies)) {
      if (found) consider(found->strategy, found->measured.evaluation, reordered(kPipeline));
    }
  }

  // What is left of the budget, on the best start: annealing, then local search and kicks.
  void improve() {
    Start best = starts_.front();
    const Evaluation& ahead = result_.evaluation;
    const bool hopeless =
        ahead.feasible &&
        (!best.tried.evaluation.feasible ||
         to_seconds(ahead.step) < kFarAhead * to_seconds(best.tried.evaluation.step));
    if (hopeless && !context_.budget.limited()) return;
    const auto keep = [&](const SearchResult& found, std::string name, const std::string& by) {
      if (!better(found.evaluation, best.tried.evaluation)) return;
      if (!name.ends_with(by)) name += " + " + by;
      best = {{found.strategy, found.evaluation}, std::move(name)};
      consider(found.strategy, found.evaluation, best.name);
    };
    // From the best start, and from the best of another origin where there is time for both: starts
    // of one origin end alike.
    std::vector<Start> annealed;
    if (plans_in_all() >= kPlansToAnneal) annealed.push_back(best);
    for (Start& start : starts_) {
      if (annealed.size() == 2 || plans_in_all() < 2 * kPlansToAnneal) break;
      if (start.name != best.name && start.tried.evaluation.feasible) {
        annealed.push_back(std::move(start));
      }
    }
    for (std::size_t i = 0; i < annealed.size(); ++i) {
      const double now = evaluator_.used();
      const auto left = static_cast<double>(annealed.size() - i);
      keep(anneal(evaluator_, annealed[i].tried.strategy, context_.rng,
                  {.evaluations = kUnbounded,
                   .until = now + (kAnnealed - now) / left,
                   .hot = kHot,
                   .scorer = options_.scorer,
                   .drawn = options_.drawn}),
           annealed[i].name, "annealing");
    }
    // Where climbing is stuck, the other starts have their turn, if no annealing came before; then
    // the best is kicked.
    std::vector<Start> turns{best};
    if (annealed.empty()) {
      for (std::size_t i = 1; i < starts_.size(); ++i) turns.push_back(starts_[i]);
    }
    std::erase_if(turns, [](const Start& start) { return !start.tried.evaluation.feasible; });
    const std::int64_t patience = affordable_patience();
    // Nothing new to evaluate for this many rounds: the space is exhausted.
    int stale = 0;
    for (std::size_t turn = 0; !evaluator_.spent() && stale < kStaleRounds; ++turn) {
      const Start from = turn < turns.size() ? turns[turn]
                         : turn == 0         ? best
                                             : Start{{kick(best.tried.strategy), {}}, best.name};
      const std::int64_t before = evaluator_.evaluations();
      keep(local_search(evaluator_, from.tried.strategy, context_.rng,
                        {.evaluations = kUnbounded,
                         .patience = patience,
                         .scorer = options_.scorer,
                         .drawn = options_.drawn}),
           from.name, "local-search");
      stale = evaluator_.evaluations() == before ? stale + 1 : 0;
    }
  }

  // A fifth of a small budget, so that climbing can begin anew at least once.
  std::int64_t affordable_patience() const {
    if (options_.patience == 0) return 0;
    const auto part = static_cast<std::int64_t>(plans_in_all() / kTurns);
    return std::min(std::max(part, kLeastPatience), options_.patience);
  }

  // A few moves at once, whatever they cost, to leave a local optimum.
  Strategy kick(const Strategy& strategy) {
    const MoveMaker maker(context_.problem());
    Incumbent from{to_candidate(strategy), evaluator_.evaluate(strategy)};
    const int moves = 1 + static_cast<int>(context_.rng.below(3));
    for (int i = 0; i < moves; ++i) {
      const auto kind = static_cast<MoveKind>(context_.rng.below(kMoveKindCount));
      from.candidate = apply(from.candidate, maker.propose(from, kind, context_.rng));
    }
    return to_strategy(from.candidate);
  }

  PlannerContext& context_;
  const Proposer& propose_;
  PortfolioOptions options_;
  BatchEvaluator evaluator_;
  const bool costly_ = evaluations_are_costly(context_.problem());
  const space::GroupSummaries groups_ = space::summarize_groups(context_.problem());
  PlannerResult result_;
  std::vector<Start> starts_;          // plain
  std::optional<FewerDevices> fewer_;  // that may be as fast in a better order
  bool found_ = false;
};

}  // namespace

PlannerResult best_plan(PlannerContext& context, const Proposer& propose,
                        const PortfolioOptions& options) {
  return Search(context, propose, options).run();
}

}  // namespace heterog::planner

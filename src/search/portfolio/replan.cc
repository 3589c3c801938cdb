// Candidates that a changed cluster calls for, the best of them settled and climbed from.
#include "search/portfolio/replan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/answers/better_order.h"
#include "search/answers/leave_out.h"
#include "search/coarse/coarse_pipelines.h"
#include "search/engines/halving.h"
#include "search/engines/local_search.h"
#include "search/moves/move.h"
#include "search/pipeline/pipelines.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/baselines.h"
#include "search/starts/estimated_layouts.h"
#include "search/starts/settle.h"
#include "search/starts/starts.h"
#include "search/starts/sync_split.h"
#include "search/starts/widths.h"
#include "space/cluster_summary.h"
#include "space/group_summary.h"

namespace heterog::search {
namespace {

using decide::Strategy;

constexpr const char* kCarried = "carried";
// Rounds of settling, two plans each.
constexpr int kRounds = 4;
// Pipelines that are tried in the place of one, of as many micro-batches and of any number.
constexpr std::size_t kCutsAnew = 3;
// A rival that is so much slower is not settled.
constexpr double kNearly = 1.15;
// Servers of rows that make so many transfers take long to simulate: without a limit of time, and
// with one.
constexpr double kMostTransfers = 50'000, kFewTransfers = 20'000;
// Varying widths takes up to 46 plans for each of its changes.
constexpr std::int64_t kPlansForWidths = 48;
// Splitting synchronisation takes up to 11.
constexpr std::int64_t kPlansForSplits = 12;
// Without a budget, plans of moves of all groups together come on top: so many, or of so many
// tasks.
constexpr std::int64_t kPlansTogether = 120;
constexpr std::size_t kTasksTogether = 300'000;
// Plans for each round in which the order is improved.
constexpr std::int64_t kPlansPerOrderRound = 16, kMostRounds = 6;

bool is_one_batch(const Strategy& strategy) {
  return strategy.micro_batches == 1 && strategy.unit_of_op.empty();
}

bool has_servers(const Strategy& strategy) {
  return std::ranges::any_of(strategy.units, [](const decide::UnitDecision& unit) {
    return unit.replicas.size() > 1 && unit.sync == decide::SyncMethod::kParameterServer;
  });
}

class Replanning {
 public:
  Replanning(PlannerContext& context, Budget budget)
      : context_(context),
        evaluator_(context.oracle, std::move(budget)),
        groups_(space::summarize_groups(context.problem())),
        rows_are_cheap_(transfers_of_several_servers(context.problem()) <=
                        (context.budget.time_used ? kFewTransfers : kMostTransfers)) {}

  Replanned run(const std::vector<Strategy>& carried, const std::vector<Strategy>& changed) {
    std::vector<Strategy> together = carried;  // simulated on several threads
    together.insert(together.end(), changed.begin(), changed.end());
    const Start best = best_of(together, kCarried), first = best_of(carried, kCarried);
    result_ = best;
    from_ = without_own_order(best);
    let_idle_join();
    fit_in_memory();
    cut_again();
    settle_shares();
    rivals();
    if (is_one_batch(from_.tried.strategy) && evaluator_.evaluations_left() >= kPlansForWidths) {
      keep(vary_widths(evaluator_, groups_, from_.tried), " + widths");
    }
    split();
    choose_servers();
    climb_together();
    climb();
    choose_servers();
    improve_order();
    return {{.strategy = std::move(result_.tried.strategy),
             .evaluation = result_.tried.evaluation,
             .evaluations = evaluator_.evaluations(),
             .refused = evaluator_.refused(),
             .found_by = std::move(result_.name)},
            first.tried.evaluation};
  }

 private:
  Start best_of(const std::vector<Strategy>& strategies, const std::string& name) {
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    std::size_t best = 0;
    for (std::size_t i = 1; i < measured.size(); ++i) {
      if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
    }
    return {{strategies[best], measured[best].evaluation}, name};
  }
  // Goes on from it if it is better than what is gone on from.
  void go_on_from(Start start) {
    if (!better(start.tried.evaluation, from_.tried.evaluation)) return;
    from_ = std::move(start);
    if (better(from_.tried.evaluation, result_.tried.evaluation)) result_ = from_;
  }
  void keep(Tried found, const char* by) {
    go_on_from({std::move(found), from_.name.ends_with(by) ? from_.name : from_.name + by});
  }

  // What moves start from: an order that was improved for other slices is improved again behind
  // them.
  Start without_own_order(const Start& start) {
    const Strategy plain = movable(start.tried.strategy);
    if (plain == start.tried.strategy) return start;
    return {{plain, evaluator_.evaluate(plain).evaluation}, start.name};
  }

  // Every set of several devices, or the widest one alone, gets the devices that nothing is on,
  // each by its speed.
  void let_idle_join() {
    const cost::Problem& problem = context_.problem();
    const Strategy from = from_.tried.strategy;
    if (!is_one_batch(from)) return;
    const IdVector<DeviceId, double> work = work_shares(problem, from);
    std::vector<DeviceId> idle;
    for (DeviceId device : problem.cluster->device_ids()) {
      if (work[device] <= 0) idle.push_back(device);
    }
    if (idle.empty()) return;
    const space::ModelSeconds seconds(problem);
    const auto each = static_cast<std::int64_t>(problem.cluster->device_count());
    const std::int64_t samples = std::max<std::int64_t>(1, problem.batch / each);
    const auto with_idle = [&](Replicas replicas) {
      // Of those that are there: samples a second for each unit of weight.
      double weight = 0, speed = 0;
      for (const decide::Replica& one : replicas) {
        weight += one.weight;
        speed += 1 / seconds(one.device, samples);
      }
      for (DeviceId device : idle) {
        replicas.push_back({device, weight / speed / seconds(device, samples)});
      }
      return replicas;
    };
    Replicas widest = from.units[UnitId(0)].replicas;
    for (const decide::UnitDecision& unit : from.units) {
      if (unit.replicas.size() > widest.size()) widest = unit.replicas;
    }
    std::vector<Strategy> joined(2, from);
    for (UnitId unit : id_range<UnitId>(from.units.size())) {
      const Replicas& was = from.units[unit].replicas;
      const bool shared = was.size() > 1 || widest.size() == 1;
      if (shared) joined[0].units[unit].replicas = with_idle(was);
      if (was == widest) joined[1].units[unit].replicas = with_idle(was);
    }
    go_on_from(best_of(joined, from_.name + " + devices"));
  }

  // In micro-batches, as it is or as plain data parallelism; else whatever fills the memory.
  void fit_in_memory() {
    if (from_.tried.evaluation.feasible) return;
    for (Tried& tried : try_accumulation(evaluator_)) go_on_from({std::move(tried), "accumulate"});
    split_batch();
    if (from_.tried.evaluation.feasible) return;
    for (Tried& tried : memory_fill(evaluator_, {})) go_on_from({std::move(tried), "memory-fill"});
  }
  void split_batch() {
    if (!is_one_batch(from_.tried.strategy)) return;
    std::vector<Strategy> parts;
    for (std::int64_t count : decide::kAccumulatedParts) {
      if (!decide::can_accumulate(context_.problem(), from_.tried.strategy, count)) continue;
      parts.push_back(decide::accumulate(context_.problem(), from_.tried.strategy, count));
    }
    if (!parts.empty()) go_on_from(best_of(parts, from_.name + " + micro-batches"));
  }

  // The stages of a pipeline, by estimate, for devices that are no longer what they were cut for.
  void cut_again() {
    const Strategy& from = from_.tried.strategy;
    if (from.micro_batches == 1 || from.pattern == decide::Pattern::kNone) return;
    const Evaluation& to_beat = from_.tried.evaluation;
    const PipelineLimits limits{
        .count = kCutsAnew,
        .seconds = to_beat.feasible ? kNearly * to_seconds(to_beat.step) : kNoStep,
        .improved = true,
        .all_patterns = false};
    for (const std::int64_t parts : {from.micro_batches, std::int64_t{0}}) {
      const TriedPipelines tried =
          try_pipelines_coarsely(evaluator_, limits, nullptr, {.micro_batches = parts});
      for (const TriedPipelines::One& one : tried.all) {
        go_on_from({{one.strategy, one.evaluation}, "pipeline"});
      }
    }
  }

  // One round is worth its time even where that is over: a device that is slower than it was holds
  // up all others.
  void settle_shares() {
    if (!is_one_batch(from_.tried.strategy)) return;
    const Budget budget = evaluator_.budget();
    const bool over = budget.expired();
    if (over) evaluator_.set_budget({});
    keep(settle(evaluator_, groups_, from_.tried, over ? 1 : kRounds), " + shares");
    evaluator_.set_budget(budget);
  }

  // What nobody had to search for, and what a change may make the better form of the plan.
  void rivals() {
    const cost::Problem& problem = context_.problem();
    const Strategy plain = proportional_all_reduce(problem);
    std::vector<Strategy> strategies = in_other_schedules(plain);
    strategies.push_back(plain);
    rival(strategies, "cp-ar");
    if (rows_are_cheap_) {
      Strategy by_rows = with_several_servers(problem, proportional_ps(problem), /*of_all=*/false);
      by_rows.order = decide::OrderPolicy::kRankQueued;
      rival({std::move(by_rows)}, "cp-ps + several servers");
    }
    if (!evaluations_are_costly(problem)) rival(estimated_layouts(problem), "estimate");
  }
  // The best of them, settled where it is nearly as good, as then it may become better.
  void rival(const std::vector<Strategy>& strategies, const char* name) {
    const auto plans = std::ssize(strategies) + 2 * kRounds;
    if (strategies.empty() || evaluator_.evaluations_left() < plans) return;
    if (context_.budget.expired()) return;
    const Start to_beat = std::exchange(from_, best_of(strategies, name));
    const Evaluation& found = from_.tried.evaluation;
    const bool near = found.feasible == to_beat.tried.evaluation.feasible &&
                      to_seconds(found.step) < kNearly * to_seconds(to_beat.tried.evaluation.step);
    if (near) settle_shares();
    if (better(from_.tried.evaluation, result_.tried.evaluation)) result_ = from_;
    from_ = without_own_order(from_);  // nor servers of its own, which moves would break
    go_on_from(to_beat);
  }

  void split() {
    if (!is_one_batch(from_.tried.strategy)) return;
    if (evaluator_.evaluations_left() < kPlansForSplits) return;
    const bool coarse = evaluations_are_costly(context_.problem());
    keep(split_syncs(evaluator_, groups_, from_.tried, coarse), " + split");
  }

  // Where many devices are alike, of each class one is simulated.
  void climb_together() {
    if (context_.budget.evaluations || !is_one_batch(from_.tried.strategy)) return;
    const std::int64_t left = evaluator_.evaluations_left(), before = evaluator_.evaluations();
    const auto& time_used = context_.budget.time_used;
    evaluator_.set_budget({.evaluations = before + left + kPlansTogether,
                           .time_used = time_used,
                           .tasks = kTasksTogether});
    const SearchResult found = local_search(evaluator_, from_.tried.strategy, context_.rng,
                                            {.evaluations = kPlansTogether, .together = true});
    keep({found.strategy, found.evaluation}, " + local-search");
    together_ = evaluator_.evaluations() - before;
    evaluator_.set_budget({.evaluations = evaluator_.evaluations() + left, .time_used = time_used});
  }

  void climb() {
    const SearchResult found =
        local_search(evaluator_, from_.tried.strategy, context_.rng, {.evaluations = kUnbounded});
    keep({found.strategy, found.evaluation}, " + local-search");
  }

  // Moves drop who serves what. Of what is gone on from and of the best by now, in two ways each.
  // Without a budget they come on top.
  void choose_servers() {
    if (context_.budget.expired()) return;
    const cost::Problem& problem = context_.problem();
    std::vector<Strategy> strategies;
    for (const Start* start : {&from_, &result_}) {
      Strategy plain = start->tried.strategy;
      plain.sync.clear();
      if (!has_servers(plain)) continue;
      strategies.push_back(with_balanced_servers(problem, plain));
      if (!rows_are_cheap_) continue;
      strategies.push_back(with_several_servers(problem, std::move(plain), /*of_all=*/false));
    }
    const std::int64_t left = evaluator_.evaluations_left();
    if (context_.budget.evaluations && left < std::ssize(strategies)) {
      strategies.resize(static_cast<std::size_t>(left));
    }
    if (strategies.empty()) return;
    Start found = best_of(strategies, from_.name + " + servers");
    if (better(found.tried.evaluation, result_.tried.evaluation)) result_ = std::move(found);
  }

  // Of what was climbed to and, if that is another, of what is best by now.
  void improve_order() {
    const auto rounds = static_cast<int>(std::clamp<std::int64_t>(
        (evaluator_.evaluations() - together_) / kPlansPerOrderRound, 1, kMostRounds));
    std::vector<Start> starts = {from_};
    if (result_.tried.strategy != from_.tried.strategy) starts.push_back(result_);
    for (Start& start : starts) {
      auto found = better_order(context_.oracle, start.tried.strategy, rounds);
      if (!found || !better(found->evaluation, result_.tried.evaluation)) continue;
      result_ = {std::move(*found), start.name + " + order"};
    }
  }

  PlannerContext& context_;
  BatchEvaluator evaluator_;
  space::GroupSummaries groups_;
  bool rows_are_cheap_ = false;  // on several servers
  std::int64_t together_ = 0;    // of the plans, those of moves of all groups together
  Start result_;                 // the best of all
  Start from_;                   // what is gone on from, without an order of its own
};

}  // namespace

std::int64_t replan_evaluations(const cost::Problem& problem) {
  constexpr double kSeconds = 0.1, kDevices = 12.8;
  constexpr std::int64_t kLeast = 10, kMost = 240;
  const double devices = static_cast<double>(problem.cluster->device_count());
  const double seconds = kSeconds * std::max(1.0, devices / kDevices);
  return std::clamp(evaluations_in(problem, seconds), kLeast, kMost);
}

IdVector<DeviceId, double> times_as_fast(const decide::OtherPlan& plan,
                                         const decide::DeviceMatch& match,
                                         const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  const auto of_type = [&](const std::string& name) -> std::optional<DeviceId> {
    for (DeviceId device : cluster.device_ids()) {
      if (cluster.type_of(device).name == name) return device;
    }
    return std::nullopt;
  };
  const space::ModelSeconds seconds(problem);
  const auto samples =
      std::max<std::int64_t>(1, problem.batch / static_cast<std::int64_t>(cluster.device_count()));
  IdVector<DeviceId, double> times(cluster.device_count(), 1.0);
  bool any = false;
  for (DeviceId was : id_range<DeviceId>(plan.devices.size())) {
    const DeviceId now = match.of[was];
    const std::string& type = plan.devices[was.value()].type;
    if (match.gone[was] || cluster.type_of(now).name == type) continue;
    const std::optional<DeviceId> like = of_type(type);
    if (!like) continue;
    times[now] = seconds(*like, samples) / seconds(now, samples);
    any = true;
  }
  return any ? times : IdVector<DeviceId, double>();
}

Replanned replan(PlannerContext& context, const std::vector<Strategy>& carried,
                 const std::vector<Strategy>& changed) {
  EXPECT(!carried.empty());
  Budget budget = context.budget;
  if (!budget.evaluations) budget.evaluations = replan_evaluations(context.problem());
  return Replanning(context, std::move(budget)).run(carried, changed);
}

}  // namespace heterog::search

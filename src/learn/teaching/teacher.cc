// A search, and the actions nearest to its answer.
#include "learn/teaching/teacher.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "decide/micro_batches.h"
#include "oracle/simulated_oracle.h"
#include "search/portfolio/portfolio.h"
#include "search/starts/starts.h"

namespace heterog::learn {

namespace {

constexpr std::int64_t kSimplifying = 400, kLeastSimplifying = 40;  // evaluations

struct Stretch {
  std::size_t begin = 0, end = 0;
  double weight = 0;
};

std::vector<Stretch> stretches_of(const Case& c, const Actions& actions) {
  std::vector<Stretch> stretches;
  for (std::size_t n = 0; n < actions.size(); ++n) {
    if (n == 0 || actions[n] != actions[n - 1]) stretches.push_back({n, n, 0});
    stretches.back().end = n + 1;
    stretches.back().weight += c.group_weights[n];
  }
  return stretches;
}

// With the action of the group before or behind it.
std::vector<Actions> merged(const Actions& actions, const Stretch& stretch) {
  std::vector<Actions> variants;
  const auto add = [&](space::ActionId action) {
    variants.push_back(actions);
    std::fill(variants.back().begin() + static_cast<std::ptrdiff_t>(stretch.begin),
              variants.back().begin() + static_cast<std::ptrdiff_t>(stretch.end), action);
  };
  if (stretch.begin > 0) add(actions[stretch.begin - 1]);
  if (stretch.end < actions.size()) add(actions[stretch.end]);
  return variants;
}

// One action for all groups, on at least half of the devices.
std::vector<Actions> uniform(const Case& c) {
  std::vector<Actions> variants;
  for (const space::ActionId id : c.space->ids()) {
    if (2 * c.space->decision(id).replicas.size() < c.problem->cluster->device_count()) continue;
    variants.emplace_back(c.problem->grouping.count(), id);
  }
  return variants;
}

}  // namespace

Judge judge_like(const Case& c, const decide::Strategy& like, oracle::BatchEvaluator& evaluator) {
  return [&c, &evaluator, order = like.order, buckets = like.bucket_bytes,
          parts = like.micro_batches](const Actions& actions) {
    decide::Strategy strategy = c.space->strategy(actions);
    strategy.order = order;
    strategy.bucket_bytes = buckets;
    return evaluator.evaluate(decide::in_pipeline(*c.problem, std::move(strategy), parts))
        .evaluation;
  };
}

Actions simplify(const Case& c, Actions actions, oracle::BatchEvaluator& evaluator,
                 const Judge& judge) {
  constexpr double kLonger = 1.005;
  search::Evaluation best = judge(actions);  // of all so far
  for (Actions& one : uniform(c)) {
    const search::Evaluation now = judge(one);
    if (!search::better(now, best)) continue;
    actions = std::move(one);
    best = now;
  }
  for (bool changed = true; changed && !evaluator.spent();) {
    changed = false;
    std::vector<Stretch> stretches = stretches_of(c, actions);
    if (stretches.size() < 2) break;
    std::ranges::stable_sort(stretches, {}, &Stretch::weight);
    for (const Stretch& stretch : stretches) {
      for (const Actions& variant : merged(actions, stretch)) {
        const search::Evaluation now = judge(variant);
        const bool worse = now.missing_bytes > best.missing_bytes ||
                           to_seconds(now.step) > kLonger * to_seconds(best.step);
        if (worse) continue;
        if (search::better(now, best)) best = now;
        actions = variant;
        changed = true;
        break;
      }
      if (changed || evaluator.spent()) break;
    }
  }
  return actions;
}

std::optional<Lesson> teach(const Case& c, std::int64_t evaluations, Rng rng,
                            std::function<bool()> stopped) {
  ThreadPool one_thread(1);
  oracle::SimulatedOracle oracle(*c.problem, one_thread, {}, std::move(stopped));
  search::PlannerContext context{.oracle = oracle, .rng = rng, .budget = {}};
  if (evaluations < search::one_shot_evaluations(*c.problem)) {
    context.budget.evaluations = evaluations;
  }
  // Without placements of single operators, which decisions of groups cannot say.
  const search::PlannerResult found =
      search::best_plan(context, {.order_rounds = 0, .without = search::Part::kPlacements});
  if (!found.evaluation.feasible) return std::nullopt;
  Lesson lesson{.step_seconds = to_seconds(found.evaluation.step)};
  for (GroupId group : id_range<GroupId>(c.problem->grouping.count())) {
    const OpId first = c.problem->grouping.members[group][0];
    decide::UnitDecision decision =
        found.strategy.units[decide::unit_of(*c.problem, found.strategy, first)];
    decision.in_turn = false;
    lesson.actions.push_back(c.space->nearest(decision));
  }
  // A plan in micro-batches takes so many times as long to simulate.
  const std::int64_t parts = found.strategy.micro_batches;
  oracle::BatchEvaluator evaluator(
      oracle,
      {.evaluations = std::min(evaluations, std::max(kLeastSimplifying, kSimplifying / parts))});
  lesson.actions =
      simplify(c, std::move(lesson.actions), evaluator, judge_like(c, found.strategy, evaluator));
  logger().debug("{}: a lesson of {:.6f} s in {} micro-batches, by actions {:.6f} s in {}", c.name,
                 lesson.step_seconds, parts,
                 to_seconds(evaluator.evaluate(strategy_of(c, lesson.actions)).evaluation.step),
                 is_staged(c, lesson.actions) ? c.schedule.micro_batches : 1);
  return lesson;
}

}  // namespace heterog::learn

// Reads, carries over, hands over to the search, and says what became of it.
#include "cli/answers/carried.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/output.h"
#include "decide/carry_over.h"
#include "search/portfolio/portfolio.h"
#include "search/portfolio/replan.h"
#include "search/starts/starts.h"

namespace heterog::cli {

namespace {

// Whether the budget is worth what the portfolio spends before it climbs.
bool pays_for_one_shot(const search::PlannerContext& context) {
  const search::Budget& budget = context.budget;
  if (!budget.limited()) return false;
  return !budget.evaluations ||
         *budget.evaluations >= search::one_shot_evaluations(context.problem());
}

}  // namespace

Carried read_carried(const std::string& path, const cost::Problem& problem) {
  const decide::OtherPlan plan = decide::read_other_plan(path, *problem.graph);
  const cluster::Cluster& cluster = *problem.cluster;
  const decide::DeviceMatch match = decide::match_devices(plan.devices, cluster, path);
  Carried carried{.plan = path, .gone = decide::gone_text(plan, cluster, match)};
  for (DeviceId device : match.added) carried.added.push_back(cluster.device(device).name);
  const IdVector<DeviceId, double> times = search::times_as_fast(plan, match, problem);
  const auto add = [&](std::vector<decide::Strategy>& to, const decide::CarryOver& how) {
    decide::Strategy strategy = decide::carry_over(plan, match, problem, how, path);
    if (std::ranges::find(to, strategy) == to.end()) to.push_back(std::move(strategy));
  };
  for (const decide::TakenOver by : {decide::TakenOver::kByNearest, decide::TakenOver::kByOthers}) {
    for (const bool twins : {false, true}) {
      add(carried.strategies, {by, twins});
      if (!times.empty()) add(carried.by_new_speeds, {by, twins, times});
    }
  }
  return carried;
}

search::PlannerResult plan_from(search::PlannerContext& context, Carried& carried) {
  const bool goes_on = pays_for_one_shot(context);
  search::PlannerContext first{
      .oracle = context.oracle, .rng = context.rng, .budget = context.budget};
  if (goes_on) first.budget.evaluations.reset();
  search::Replanned found = search::replan(first, carried.strategies, carried.by_new_speeds);
  carried.evaluation = found.carried;
  if (!goes_on || context.budget.expired()) return std::move(found.result);
  if (context.budget.evaluations) *context.budget.evaluations -= found.result.evaluations;
  search::PlannerResult best = search::best_plan(
      context, {.given = {found.result.strategy}, .given_by = found.result.found_by});
  best.evaluations += found.result.evaluations;
  // What is given is one of many starts, and the time may end before its turn.
  if (better(found.result.evaluation, best.evaluation)) {
    best.strategy = std::move(found.result.strategy);
    best.evaluation = found.result.evaluation;
    best.found_by = std::move(found.result.found_by);
  }
  return best;
}

OrderedJson carried_json(const Carried& carried) {
  return {{"plan", carried.plan},
          {"step_seconds", to_seconds(carried.evaluation.step)},
          {"feasible", carried.evaluation.feasible},
          {"seconds", carried.seconds},
          {"gone", carried.gone},
          {"added", carried.added}};
}

std::string carried_text(const Carried& carried, const sim::SimResult& planned) {
  std::string text = "\n";
  if (!carried.gone.empty()) text += carried.gone + "\n";
  if (!carried.added.empty()) {
    text += fmt::format("new to the plan: {}\n", fmt::join(carried.added, ", "));
  }
  const std::string file = printable(carried.plan, 400);
  if (!carried.evaluation.feasible) {
    return text + fmt::format("{} as it is does not fit in memory here\n", file);
  }
  const double as_it_was = to_seconds(carried.evaluation.step), now = to_seconds(planned.step);
  text += fmt::format("{} as it is takes {} here", file, milliseconds_text(as_it_was));
  if (planned.feasible()) text += ", this plan gains " + speedup_text(as_it_was, now);
  return text + "\n";
}

}  // namespace heterog::cli

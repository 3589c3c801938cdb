// The stages, in their order.
#include "search/portfolio/portfolio.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "search/portfolio/stages.h"
#include "search/starts/starts.h"

namespace heterog::search {
namespace {

struct Phase {
  Budget budget;
  bool limited;  // by the budget that is given
};

// In plans; each next one has four times as many.
constexpr std::int64_t kFirstPhase = 80;
// Of a budget of time, what the first phase keeps back for its last stages; a later one keeps back
// what these have taken.
constexpr double kForLastStages = 0.15;

Budget one_shot_budget(const PlannerContext& context, const PortfolioOptions& options) {
  return {.evaluations = one_shot_evaluations(context.problem()) + options.pipelines};
}

// What is kept back of a budget of evaluations is for leaving devices out, and for other servers.
Budget budget_of_stages(const PlannerContext& context) {
  Budget budget = context.budget;
  if (budget.evaluations) {
    *budget.evaluations -=
        portfolio::tries_to_leave_out(context) + portfolio::tries_of_servers(context);
  }
  return budget;
}

// Where there are few plans and climbing begins where devices are alike, it may simulate as many
// tasks as so many plans have in which they no longer are: these take a hundred times as long, and
// gain little.
constexpr std::size_t kPlansApart = 16;
constexpr std::size_t kAlike = 20;  // so many times fewer tasks one of each kind has

void limit_climbing(portfolio::Search& search) {
  if (!search.few || search.limited || !search.found) return;
  const cost::Problem& problem = search.context.problem();
  const std::size_t tasks = search.evaluator.evaluate(search.result.strategy).tasks;
  const std::size_t of_all = problem.folded->ops.size() * problem.cluster->device_count();
  if (kAlike * tasks > of_all) return;
  Budget budget = search.evaluator.budget();
  budget.tasks = kPlansApart * of_all;
  search.evaluator.set_budget(budget);
}

// From what is there to climb from.
void go_on(portfolio::Search& search) {
  const Budget budget = search.evaluator.budget();
  // Where plans are few, climbing takes longer than pipelines do.
  const bool pipelines_first = search.few && !search.limited;
  if (pipelines_first) portfolio::try_pipelines(search);
  if (!pipelines_first || !portfolio::pipelines_lead(search)) {
    limit_climbing(search);
    portfolio::climb_starts(search);
    search.evaluator.set_budget(budget);
  }
  if (!pipelines_first) portfolio::try_pipelines(search);
  limit_climbing(search);
  portfolio::improve(search);
}

// From what was found to the plan in its better order.
void finish(portfolio::Search& search) {
  portfolio::leave_devices_out(search);
  portfolio::try_placements(search);
  portfolio::improve_orders(search);
  portfolio::choose_servers(search);
}

double time_used(const Budget& budget) { return budget.time_used ? budget.time_used() : 0; }

// But for this part of its time, if that is limited.
Budget all_but(Budget budget, double part) {
  if (!budget.time_used) return budget;
  budget.time_used = [used = std::move(budget.time_used), part] { return used() / (1 - part); };
  return budget;
}

// What a search goes through, each from what the one before it has found. A greater budget begins
// with phases of smaller ones, and finds no less than these; one that pays for one shot begins with
// that. What a budget of time pays for is not known beforehand: it begins with one shot, whose
// stages end by the clock where that is ahead of their plans.
std::vector<Phase> phases_of(const PlannerContext& context, const PortfolioOptions& options) {
  const Budget one_shot = one_shot_budget(context, options), whole = budget_of_stages(context);
  if (!whole.limited()) return {{one_shot, false}};
  if (!whole.evaluations) {
    Budget first = one_shot;
    first.time_used = whole.time_used;
    return {{first, false}, {whole, true}};
  }
  if (*whole.evaluations > *one_shot.evaluations + portfolio::plans_together(context.problem())) {
    return {{one_shot, false}, {whole, true}};
  }
  std::vector<Phase> phases;
  for (std::int64_t evaluations = kFirstPhase; evaluations < *whole.evaluations; evaluations *= 4) {
    phases.push_back({whole, true});
    phases.back().budget.evaluations = evaluations;
  }
  phases.push_back({whole, true});
  return phases;
}

}  // namespace

PlannerResult best_plan(PlannerContext& context, const PortfolioOptions& options) {
  const std::vector<Phase> phases = phases_of(context, options);
  portfolio::Search search{.context = context,
                           .options = options,
                           .evaluator = BatchEvaluator(context.oracle, phases.front().budget),
                           .costly = evaluations_are_costly(context.problem()),
                           .few = evaluations_are_few(context.problem()),
                           .limited = phases.front().limited,
                           .groups = space::summarize_groups(context.problem())};
  const bool counted = context.budget.evaluations.has_value();
  if (search.few && !counted) search.evaluator.give_up_beyond(portfolio::kTooFarBehind);
  portfolio::try_baselines(search);
  if (!search.evaluator.spent()) portfolio::try_starts(search);
  double kept_back = kForLastStages;
  for (const Phase& phase : phases) {
    search.evaluator.set_budget(all_but(phase.budget, kept_back));
    search.limited = phase.limited;
    // A budget that the baselines have used up ends here.
    if (search.starts.empty() || search.evaluator.spent()) continue;
    go_on(search);
    const double before = time_used(context.budget);
    finish(search);
    kept_back = std::min(time_used(context.budget) - before, kForLastStages);
  }
  if (search.starts.empty()) portfolio::improve_orders(search);
  search.result.evaluations = search.evaluator.evaluations() - search.evaluator.given_up();
  search.result.refused = search.evaluator.refused();
  return std::move(search.result);
}

}  // namespace heterog::search

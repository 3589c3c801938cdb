// One (graph, cluster, batch) as the trainer sees it, and what it has learnt about it so far.
#include "learn/reinforce/case.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "learn/formula/formula_strategy.h"
#include "oracle/simulated_oracle.h"
#include "search/pipeline/chain.h"
#include "search/starts/baselines.h"
#include "search/starts/settle.h"
#include "space/group_summary.h"
#include "space/spans.h"

namespace heterog::learn {
namespace {

// So many plans that are likely are proposed before the formula's own.
constexpr std::size_t kBeforeTheFormula = 4;

// Every group on the device whose span of the line holds the group's middle.
Actions blocks(const space::ActionSpace& space, const IdVector<GroupId, space::Span>& groups,
               const IdVector<DeviceId, space::Span>& devices) {
  Actions actions;
  std::size_t device = 0;
  for (const auto& [begin, end] : groups) {
    while (device + 1 < devices.size() && (begin + end) / 2 >= devices[DeviceId(device)][1])
      ++device;
    actions.push_back(space.single(DeviceId(device)));
  }
  return actions;
}

// Of the rows that the formula's policy knows, with what it knows of layouts.
FeatureTensors of_rows(FeatureTensors features, const FormulaTerms& terms) {
  std::vector<std::int64_t> rows;
  for (const space::ActionId row : terms.rows) {
    rows.push_back(static_cast<std::int64_t>(row.value()));
  }
  const auto index = torch::tensor(rows, torch::kInt64);
  features.actions = features.actions.index_select(1, index);
  features.allowed = features.allowed.index_select(1, index);
  features.members = features.members.index_select(0, index);
  features.scheme = features.scheme.index_select(0, index);
  features.layouts = torch::tensor(layout_features(terms))
                         .view({static_cast<std::int64_t>(kLayouts), kLayoutFeatures});
  return features;
}

// Units that are the case's groups, as its own problem knows them.
decide::Strategy on_groups(const Case& c, decide::Strategy strategy) {
  const auto& group_of = c.problem->grouping.group_of;
  for (OpId op : id_range<OpId>(strategy.unit_of_op.size())) {
    if (strategy.unit_of_op[op].value() != group_of[op].value()) return strategy;
  }
  strategy.unit_of_op.clear();
  return strategy;
}

std::vector<oracle::Measured> settled(const Case& c, std::vector<decide::Strategy> strategies,
                                      oracle::Oracle& oracle, int rounds) {
  oracle::BatchEvaluator evaluator(oracle);
  for (decide::Strategy& one : strategies) one = on_groups(c, std::move(one));
  std::vector<oracle::Measured> measured = evaluator.evaluate(strategies);
  const space::GroupSummaries groups = space::summarize_groups(*c.problem);
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    if (strategies[i].micro_batches > 1 || !strategies[i].unit_of_op.empty()) continue;
    measured[i].evaluation =
        search::settle(evaluator, groups, {strategies[i], measured[i].evaluation}, rounds)
            .evaluation;
  }
  return measured;
}

}  // namespace

decide::OrderPolicy find_order(oracle::BatchEvaluator& evaluator) {
  using decide::OrderPolicy;
  std::array<decide::Strategy, 2> plain;
  plain.fill(search::even_all_reduce(evaluator.problem()));
  for (decide::UnitDecision& unit : plain[1].units) {
    unit.sync = decide::SyncMethod::kParameterServer;
  }
  OrderPolicy best = OrderPolicy::kRank;
  double least = std::numeric_limits<double>::infinity();
  for (OrderPolicy policy : decide::kSearchedOrders) {
    for (decide::Strategy& strategy : plain) strategy.order = policy;
    double together = 1;
    for (const oracle::Measured& measured : evaluator.evaluate(plain)) {
      together *= to_seconds(measured.evaluation.step);
    }
    if (together >= least) continue;
    best = policy;
    least = together;
  }
  return best;
}

std::size_t decision_count(const Case& c) {
  return c.problem->grouping.count() + (c.formula ? kKnobValues.size() : 0);
}

std::size_t decision_values(const Case& c, std::size_t i) {
  const std::size_t groups = c.problem->grouping.count();
  return i < groups ? c.space->size() : kKnobValues[i - groups];
}

Case make_case(std::string name, std::unique_ptr<const cost::Problem> problem,
               decide::OrderPolicy order, const TrainConfig& config) {
  const space::ActionTable actions = action_table(config);
  Case c{.name = std::move(name),
         .problem = std::move(problem),
         .space = nullptr,
         .features = {},
         .formula = nullptr};
  c.space = std::make_unique<const space::ActionSpace>(*c.problem, actions);
  const space::Summary summary(*c.problem, actions);
  c.features = learn::to_tensors(learn::make_features(summary));
  if (begins_as_formula(config)) {
    c.formula = std::make_unique<const FormulaTerms>(formula_terms(summary));
    c.features = of_rows(std::move(c.features), *c.formula);
  }
  c.order = order;
  return c;
}

std::unique_ptr<const cost::Problem> regrouped(const cost::Problem& problem, int max_groups) {
  auto copy = std::make_unique<cost::Problem>(problem);
  const search::Chain chain = search::make_chain(problem, static_cast<std::size_t>(max_groups));
  std::vector<std::vector<OpId>> members(chain.layers.size());
  copy->grouping = {};
  for (OpId op : problem.graph->op_ids()) {
    copy->grouping.group_of.push_back(GroupId(chain.layer_of[op]));
    members[chain.layer_of[op]].push_back(op);
  }
  for (const std::vector<OpId>& ops : members) copy->grouping.members.push_row(ops);
  return copy;
}

decide::Strategy strategy_of(const Case& c, const Actions& actions) {
  if (c.formula) {
    return formula_strategy(*c.problem, *c.space, *c.formula, to_plan(*c.formula, actions));
  }
  decide::Strategy strategy = c.space->strategy(actions);
  strategy.order = c.order;
  return strategy;
}

decide::Strategy standalone_strategy(const Case& c, const Actions& actions) {
  decide::Strategy strategy = strategy_of(c, actions);
  if (!strategy.unit_of_op.empty()) return strategy;
  strategy.unit_of_op.reserve(c.problem->graph->op_count());
  for (OpId op : c.problem->graph->op_ids()) {
    strategy.unit_of_op.push_back(UnitId(c.problem->grouping.group_of[op].value()));
  }
  return strategy;
}

double memory_need(const Case& c, const Actions& actions) {
  return c.formula ? memory_need(*c.formula, to_plan(*c.formula, actions).choice) : 0;
}

Measure simulated(ThreadPool& threads, int settling_rounds) {
  return [&threads, settling_rounds](const Case& c, std::span<const decide::Strategy> strategies) {
    std::vector<decide::Strategy> as_they_are(strategies.begin(), strategies.end());
    for (decide::Strategy& strategy : as_they_are) strategy.order_rounds = 0;
    oracle::SimulatedOracle oracle(*c.problem, threads);
    if (settling_rounds == 0) return oracle.measure(as_they_are);
    return settled(c, std::move(as_they_are), oracle, settling_rounds);
  };
}

std::vector<search::Evaluation> evaluate_samples(const Case& c, std::span<const Actions> samples,
                                                 const Measure& measure) {
  // A policy that is sure of a pipeline draws it several times; it is simulated once.
  std::vector<std::size_t> of_sample;
  std::vector<const Actions*> unlike;
  for (const Actions& actions : samples) {
    const auto at =
        std::ranges::find_if(unlike, [&](const Actions* one) { return *one == actions; });
    of_sample.push_back(static_cast<std::size_t>(at - unlike.begin()));
    if (at == unlike.end()) unlike.push_back(&actions);
  }
  std::vector<decide::Strategy> strategies;
  for (const Actions* actions : unlike) strategies.push_back(standalone_strategy(c, *actions));
  const std::vector<oracle::Measured> measured = measure(c, strategies);
  ENSURE(measured.size() == strategies.size());
  std::vector<search::Evaluation> evaluations;
  for (const std::size_t i : of_sample) evaluations.push_back(measured[i].evaluation);
  return evaluations;
}

std::vector<Actions> likely_strategies(const Case& c, const Said& said, std::size_t count) {
  if (!said.formula) return {most_likely(said.log_probabilities)};
  std::vector<Actions> proposals;
  std::vector<decide::Strategy> seen;  // unlike choices often come to the same plan
  const auto add = [&](const DrawnPlan& plan) {
    if (proposals.size() == count) return;
    decide::Strategy strategy = formula_strategy(*c.problem, *c.space, *c.formula, plan);
    if (std::ranges::find(seen, strategy) != seen.end()) return;
    seen.push_back(std::move(strategy));
    proposals.push_back(to_actions(*c.formula, plan));
  };
  visit_likely_plans(*c.formula, *said.formula, [&](const DrawnPlan& plan) {
    add(plan);
    // Where a model is like none of those that it was trained on, what was learnt may mislead.
    if (proposals.size() == kBeforeTheFormula) {
      for (const DrawnPlan& one : formula_plans(*c.formula)) add(one);
    }
    return proposals.size() < count;
  });
  return proposals;
}

std::vector<Actions> first_strategies(const Case& c) {
  if (c.formula) {
    return {to_actions(*c.formula, formula_plans(*c.formula).front())};
  }
  const std::size_t groups = c.problem->grouping.count();
  std::vector<Actions> strategies;
  for (const space::Action& action : space::kReplicated) {
    strategies.emplace_back(groups, c.space->id(action));
  }
  const space::Spans spans = space::lay_end_to_end(space::summarize_groups(*c.problem),
                                                   space::summarize_cluster(*c.problem));
  strategies.push_back(blocks(*c.space, spans.group_memory, spans.device_memory));
  strategies.push_back(blocks(*c.space, spans.group_time, spans.device_speed));
  return strategies;
}

void keep_best(std::optional<Scored>& best, std::span<const Actions> samples,
               std::span<const search::Evaluation> evaluations) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!best || better(evaluations[i], best->evaluation)) best = {samples[i], evaluations[i]};
  }
}

}  // namespace heterog::learn

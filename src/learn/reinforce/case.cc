// One (graph, cluster, batch) as the trainer sees it, and what it has learnt about it so far.
#include "learn/reinforce/case.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "learn/problems/problems.h"
#include "oracle/simulated_oracle.h"
#include "search/pipeline/chain.h"
#include "search/starts/baselines.h"
#include "space/group_summary.h"
#include "space/spans.h"

namespace heterog::learn {
namespace {

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

// Each value's part of their sum; even where that is 0.
std::vector<double> parts_of(std::vector<double> values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) {
    value = sum > 0 ? value / sum : 1 / static_cast<double>(values.size());
  }
  return values;
}

std::vector<double> group_times(const cost::Problem& problem) {
  std::vector<double> seconds;
  for (const space::GroupSummary& group : space::summarize_groups(problem)) {
    seconds.push_back(group.seconds);
  }
  return parts_of(std::move(seconds));
}

std::vector<double> group_weights(const cost::Problem& problem, const std::vector<double>& times) {
  constexpr double kByTime = 0.45, kByState = 0.45;  // the rest is even
  std::vector<double> weights;
  for (const space::GroupSummary& group : space::summarize_groups(problem)) {
    weights.push_back(static_cast<double>(group.state_bytes()));
  }
  weights = parts_of(std::move(weights));
  for (std::size_t n = 0; n < weights.size(); ++n) {
    weights[n] = kByTime * times[n] + kByState * weights[n] +
                 (1 - kByTime - kByState) / static_cast<double>(weights.size());
  }
  return weights;
}

// With the order of its strategies, and all that the network reads.
Case case_of(NamedProblem problem, const TrainConfig& config) {
  oracle::Evaluator simulator(*problem.problem);
  oracle::BatchEvaluator evaluator(simulator);
  const decide::OrderPolicy order = find_order(evaluator);
  const auto max_groups = static_cast<int>(config.max_groups);
  Case c = make_case(std::move(problem.name), regrouped(*problem.problem, max_groups),
                     {.order = order}, action_table(config));
  c.schedule.micro_batches = find_micro_batches(c, evaluator);
  return c;
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

bool is_staged(const Case& c, const Actions& actions) {
  constexpr double kMost = 0.5, kNearlyAll = 0.9;
  double on_few = 0;
  std::map<std::vector<DeviceId>, double> on_set;
  for (std::size_t n = 0; n < actions.size(); ++n) {
    std::vector<DeviceId> devices;
    for (const decide::Replica& one : c.space->decision(actions[n]).replicas) {
      devices.push_back(one.device);
    }
    if (2 * devices.size() > c.problem->cluster->device_count()) continue;
    on_few += c.group_times[n];
    on_set[std::move(devices)] += c.group_times[n];
  }
  return on_few > kMost &&
         std::ranges::all_of(on_set, [](const auto& set) { return set.second < kNearlyAll; });
}

std::int64_t find_micro_batches(const Case& c, oracle::BatchEvaluator& evaluator) {
  const Actions blocks = plain_strategies(c).back();  // by time and speed
  if (!is_staged(c, blocks)) return 1;
  const decide::Strategy strategy = standalone_strategy(c, blocks);
  std::vector<std::int64_t> parts = decide::possible_parts(evaluator.problem(), strategy);
  parts.insert(parts.begin(), 1);
  std::vector<decide::Strategy> strategies;
  for (std::int64_t count : parts) {
    strategies.push_back(decide::in_pipeline(evaluator.problem(), strategy, count));
  }
  const std::vector<oracle::Measured> measured = evaluator.evaluate(strategies);
  const auto best =
      std::ranges::min_element(measured, search::better, &oracle::Measured::evaluation);
  return parts[static_cast<std::size_t>(best - measured.begin())];
}

Case make_case(std::string name, std::unique_ptr<const cost::Problem> problem,
               const Schedule& schedule, space::ActionTable actions) {
  Case c{.name = std::move(name), .problem = std::move(problem), .space = nullptr, .features = {}};
  c.space = std::make_unique<const space::ActionSpace>(*c.problem, actions);
  c.features = learn::to_tensors(learn::make_features(*c.problem, actions));
  c.group_times = group_times(*c.problem);
  c.group_weights = group_weights(*c.problem, c.group_times);
  c.schedule = schedule;
  return c;
}

std::vector<Case> load_cases(const TrainConfig& config, const std::function<bool()>& stopped) {
  VALIDATE(!config.graphs.empty(), "training config: graphs: is empty; name at least one graph");
  VALIDATE(!config.clusters.empty() || config.random_cases > 0,
           "training config: clusters: is empty; name at least one cluster, or say how many "
           "random_cases there are");
  std::vector<std::shared_ptr<const cluster::Cluster>> clusters;
  for (const std::string& path : config.clusters) {
    clusters.push_back(std::make_shared<const cluster::Cluster>(cluster::load_cluster(path)));
  }
  ProblemLoader loader(config);
  std::vector<Case> cases;
  const auto add = [&](std::optional<NamedProblem> problem) {
    expect_not_stopped(stopped);
    if (problem) cases.push_back(case_of(std::move(*problem), config));
  };
  for (const TrainGraph& entry : config.graphs) {
    for (std::int64_t batch : entry.batches) {
      const graph::KnownBatches& known = loader.known(entry.graph);
      VALIDATE(known.contain(batch),
               "training config: graphs: batch {}: {} is known to hold for batches of {}", batch,
               printable(entry.graph, 400), known.text());
      for (const auto& cluster : clusters) add(loader.given(entry, batch, cluster));
    }
  }
  for (std::int64_t i = 0; i < config.random_cases; ++i) add(loader.random(i));
  VALIDATE(!cases.empty(), "training config: leave_out: leaves no case");
  return cases;
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
  decide::Strategy strategy = c.space->strategy(actions);
  strategy.order = c.schedule.order;
  if (!is_staged(c, actions)) return strategy;
  return decide::in_pipeline(*c.problem, std::move(strategy), c.schedule.micro_batches);
}

decide::Strategy standalone_strategy(const Case& c, const Actions& actions) {
  decide::Strategy strategy = strategy_of(c, actions);
  strategy.unit_of_op.reserve(c.problem->graph->op_count());
  for (OpId op : c.problem->graph->op_ids()) {
    strategy.unit_of_op.push_back(UnitId(c.problem->grouping.group_of[op].value()));
  }
  return strategy;
}

Measure simulated(ThreadPool& threads) {
  return [&threads](const Case& c, std::span<const decide::Strategy> strategies) {
    return oracle::SimulatedOracle(*c.problem, threads).measure(strategies);
  };
}

std::vector<search::Evaluation> evaluate_samples(const Case& c, std::span<const Actions> samples,
                                                 const Measure& measure) {
  std::vector<decide::Strategy> strategies;
  for (const Actions& actions : samples) strategies.push_back(standalone_strategy(c, actions));
  std::vector<search::Evaluation> evaluations;
  for (const oracle::Measured& measured : measure(c, strategies)) {
    evaluations.push_back(measured.evaluation);
  }
  ENSURE(evaluations.size() == samples.size());
  return evaluations;
}

std::vector<Actions> plain_strategies(const Case& c) {
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

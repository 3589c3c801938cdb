// What was found, on as few devices as it needs, in a better order.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"
#include "decide/decisions.h"
#include "search/moves/move.h"
#include "search/portfolio/stages.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/settle.h"
#include "search/starts/starts.h"
#include "space/cluster_summary.h"

namespace heterog::search::portfolio {
namespace {

// Tries to leave devices out, and of other servers, are so small a part of a budget.
constexpr std::int64_t kPlansPerTry = 20;
// On fewer devices a step may be longer by this part of itself before its order is improved.
constexpr double kCatchesUp = 0.01;

// Where plans take long, what takes so many times as long as the best is left in its order.
constexpr double kOrderGains = 1.3;

// Plans with other servers, most of them in the first phase of a budget, three in each later one.
constexpr std::int64_t kTriesOfServers = 24;

// Where every parameter has several servers: steps of so many transfers are simulated in a moment,
// in a second or two, and in several, which is too long where all else takes a few.
constexpr double kFewTransfers = 200'000, kManyTransfers = 400'000, kMostTransfers = 1'000'000;

// Between two looks at the clock.
constexpr std::size_t kAtATime = 4;

// Shares by speed, and servers of rows; they are worth settling where they are so near the best.
constexpr const char* kByRowsAndSpeed = "cp-ps + several servers";
constexpr double kNear = 1.3;
constexpr int kSettlingRounds = 2;  // of two plans each

bool is_near(const Search& search, const Evaluation& evaluation) {
  return evaluation.feasible &&
         (!search.result.evaluation.feasible ||
          to_seconds(evaluation.step) <= kNear * to_seconds(search.result.evaluation.step));
}

bool servers_are_far_behind(const Search& search) {
  if (!search.costly || !search.result.evaluation.feasible) return false;
  const double longest = kTooFarBehind * to_seconds(search.result.evaluation.step);
  return std::ranges::none_of(search.result.baselines, [&](const BaselineResult& one) {
    return one.name.ends_with("-ps") && to_seconds(one.evaluation.step) <= longest;
  });
}

// One shot ends when its stages do: the last ones take what they need. Of a budget of plans they
// take what is left. How many of these there are.
std::int64_t allow(Search& search, std::int64_t plans) {
  const std::int64_t before = search.evaluator.evaluations();
  Budget budget = search.context.budget;
  budget.evaluations = std::min(before + plans, budget.evaluations.value_or(before + plans));
  search.evaluator.set_budget(budget);
  return *budget.evaluations - before;
}

// The first of them, as many as there is time for; all if time is no matter.
std::vector<Measured> evaluate_in_time(Search& search,
                                       std::span<const decide::Strategy> strategies) {
  const Budget& budget = search.context.budget;
  const std::size_t at_a_time = budget.time_used ? kAtATime : strategies.size();
  std::vector<Measured> measured;
  while (measured.size() < strategies.size() && !budget.expired()) {
    const std::span left = strategies.subspan(measured.size());
    std::ranges::move(search.evaluator.evaluate(left.first(std::min(at_a_time, left.size()))),
                      std::back_inserter(measured));
  }
  return measured;
}

// The machines whose devices take longest for the same samples, in the mean, the slowest first; of
// equals the last one.
std::vector<MachineId> slowest_machines(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  const space::ModelSeconds seconds(problem);
  const std::int64_t samples =
      std::max<std::int64_t>(1, problem.batch / static_cast<std::int64_t>(cluster.device_count()));
  std::map<MachineId, std::pair<double, int>> together;
  for (DeviceId device : cluster.device_ids()) {
    auto& [sum, count] = together[cluster.device(device).machine];
    sum += seconds(device, samples);
    ++count;
  }
  std::vector<std::pair<double, MachineId>> order;
  for (const auto& [machine, of_it] : together) {
    order.emplace_back(of_it.first / of_it.second, machine);
  }
  std::ranges::sort(order, std::greater());
  std::vector<MachineId> machines;
  for (const auto& [mean, machine] : order) machines.push_back(machine);
  return machines;
}

// The first of them without its slowest machines: without 1, 2, 4, … of them, up to half. Servers
// and all who ask them share fewer links then.
void append_on_fewer_machines(const cost::Problem& problem, std::vector<decide::Strategy>& all) {
  const std::vector<MachineId> slowest = slowest_machines(problem);
  for (std::size_t count = 1; 2 * count <= slowest.size(); count *= 2) {
    const std::span<const MachineId> left_out(slowest.data(), count);
    decide::Strategy fewer = all.front();
    for (decide::UnitDecision& unit : fewer.units) {
      std::erase_if(unit.replicas, [&](const decide::Replica& one) {
        const MachineId machine = problem.cluster->device(one.device).machine;
        return std::ranges::find(left_out, machine) != left_out.end();
      });
    }
    all.push_back(std::move(fewer));
  }
}

// Servers of rows make other devices the slowest than those by which shares were found.
void settle_servers(Search& search, const Tried& start) {
  if (!is_near(search, start.evaluation)) return;
  if (allow(search, 2 * kSettlingRounds) < 2 * kSettlingRounds) return;
  const cost::Problem& problem = search.context.problem();
  const space::GroupSummaries groups = space::summarize_groups(with_units(problem, start.strategy));
  const Tried settled = settle(search.evaluator, groups, start, kSettlingRounds);
  consider(search, settled.strategy, settled.evaluation,
           std::string(kByRowsAndSpeed) + " + shares");
}

void take(Search& search, const FewerDevices& fewer) {
  logger().debug("{} plans: {:.6f} s without {} of the devices", search.evaluator.evaluations(),
                 to_seconds(fewer.evaluation.step), fewer.left_out.size());
  search.result.strategy = fewer.strategy;
  search.result.evaluation = fewer.evaluation;
}

}  // namespace

std::int64_t tries_to_leave_out(const PlannerContext& context) {
  const std::int64_t most = affordable_tries(context.problem());
  if (!context.budget.evaluations) return most;
  return std::min(most, *context.budget.evaluations / kPlansPerTry);
}

std::int64_t tries_of_servers(const PlannerContext& context) {
  if (!context.budget.evaluations) return 0;
  if (transfers_of_several_servers(context.problem()) > kFewTransfers) return 0;
  return std::min(kTriesOfServers, *context.budget.evaluations / kPlansPerTry);
}

void leave_devices_out(Search& search) {
  PlannerResult& result = search.result;
  if (!with(search, Part::kLeaveOut)) return;
  const std::int64_t most = tries_to_leave_out(search.context);
  const auto fewer =
      leave_out(search.evaluator, result.strategy, result.evaluation, {.most = most});
  if (fewer) take(search, *fewer);
  search.fewer = leave_out(search.evaluator, result.strategy, result.evaluation,
                           {.tolerance = kCatchesUp, .most = most});
}

void improve_orders(Search& search) {
  PlannerResult& result = search.result;
  std::vector<decide::Strategy> strategies = {result.strategy};
  std::vector<std::string> names = {result.found_by};
  if (const auto placement = std::exchange(search.placement, std::nullopt)) {
    const auto& [strategy, evaluation] = placement->tried;
    strategies.push_back(strategy);
    names.push_back(placement->name);
    consider(search, strategy, evaluation, placement->name);
  }
  if (!with(search, Part::kOrder) || search.context.budget.expired()) return;
  // What is a little behind in its own order may be ahead in a better one.
  const double longest = kOrderGains * to_seconds(result.evaluation.step);
  for (const std::vector<Start>* starts : {&search.starts, &search.pipelines}) {
    if (starts->empty() || starts->front().tried.strategy == strategies.front()) continue;
    if (search.few && to_seconds(starts->front().tried.evaluation.step) > longest) continue;
    strategies.push_back(starts->front().tried.strategy);
    names.push_back(starts->front().name);
  }
  const std::size_t fewer = strategies.size();
  if (search.fewer) strategies.push_back(search.fewer->strategy);
  const auto ordered = better_orders(search, strategies);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const auto& found = ordered[i]) {
      consider(search, found->strategy, found->evaluation, reordered(names[i]));
    }
  }
  if (!search.fewer) return;
  if (const auto& found = ordered[fewer]) {
    search.fewer->strategy = found->strategy;
    search.fewer->evaluation = found->evaluation;
  }
  if (better(result.evaluation, search.fewer->evaluation)) return;
  take(search, *search.fewer);
  result.found_by = ordered[fewer] ? reordered(names.front()) : names.front();
}

void choose_servers(Search& search) {
  const cost::Problem& problem = search.context.problem();
  if (!with(search, Part::kServers) || search.context.budget.expired()) return;
  const decide::Strategy found = search.result.strategy;
  const std::string by = search.result.found_by;
  std::vector<decide::Strategy> strategies;
  std::vector<std::string> names;
  const auto add = [&](decide::Strategy strategy, std::string name) {
    if (strategy == found || std::ranges::count(strategies, strategy) > 0) return;
    strategies.push_back(std::move(strategy));
    names.push_back(std::move(name));
  };
  const auto add_in_orders = [&](decide::Strategy strategy, const std::string& name, bool one) {
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      if (one && order != decide::OrderPolicy::kRankQueued) continue;
      strategy.order = order;
      add(strategy, name);
    }
  };
  add(with_balanced_servers(problem, found), by + " + balanced servers");
  if (!servers_are_far_behind(search)) {
    add_in_orders(balanced_ps(problem), "ps-lb", search.costly);
  }
  const double transfers = transfers_of_several_servers(problem);
  const bool many = transfers > kFewTransfers;
  if (!many) {
    for (const bool of_all : {true, false}) {
      add(with_several_servers(problem, found, of_all), by + " + several servers");
    }
  }
  if (transfers <= (search.few && !search.limited ? kManyTransfers : kMostTransfers)) {
    add_in_orders(partitioned_ps(problem, ServerParts::kBytes), "partitioned-ps",
                  search.costly || many);
    std::vector<decide::Strategy> by_speed = {proportional_ps(problem)};
    if (!many) append_on_fewer_machines(problem, by_speed);
    for (decide::Strategy& one : by_speed) {
      add_in_orders(with_several_servers(problem, std::move(one), /*of_all=*/false),
                    kByRowsAndSpeed, search.costly || many);
    }
  }
  const auto& most = search.context.budget.evaluations;
  if (most) {  // of a small budget not all are there to try
    const std::int64_t left = *most - search.evaluator.evaluations();
    strategies.resize(static_cast<std::size_t>(
        std::clamp(left, std::int64_t{0}, static_cast<std::int64_t>(strategies.size()))));
  }
  const std::vector<Measured> measured = evaluate_in_time(search, strategies);
  std::map<std::size_t, Tried> by_speed;  // of each number of devices the best
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Tried one = {strategies[i], measured[i].evaluation};
    consider(search, one.strategy, one.evaluation, names[i]);
    if (names[i] != kByRowsAndSpeed) continue;
    const std::size_t devices = one.strategy.units[UnitId(0)].replicas.size();
    const auto [at, first] = by_speed.try_emplace(devices, one);
    if (!first && better(one.evaluation, at->second.evaluation)) at->second = one;
  }
  for (const auto& [devices, start] : by_speed) settle_servers(search, start);
}

}  // namespace heterog::search::portfolio

// One (graph, cluster, batch) as the trainer sees it, and what it has learnt about it so far.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cost/problem.h"
#include "learn/config.h"
#include "learn/drawing/rollout.h"
#include "learn/network/encoder.h"
#include "learn/reinforce/reinforce.h"
#include "oracle/batch_evaluator.h"
#include "search/planner.h"
#include "space/action_space.h"

namespace heterog::learn {

// What all strategies of a case have in common.
struct Schedule {
  decide::OrderPolicy order = decide::OrderPolicy::kRank;
  std::int64_t micro_batches = 1;  // of staged ones; the others take the batch as a whole
};

// Immutable.
struct Case {
  std::string name;
  std::unique_ptr<const cost::Problem> problem;  // on the policy's groups
  std::unique_ptr<const space::ActionSpace> space;
  learn::FeatureTensors features;
  // How much each group counts in a lesson: by its part of the time and of the parameter state, and
  // a little for its own sake. They add up to 1. Searches leave what matters little as it happens
  // to be.
  std::vector<double> group_weights;
  std::vector<double> group_times;  // each group's part of the time; they add up to 1
  Schedule schedule = {};
};

// Whether most of a strategy's work is on small sets of devices, at most half of them, and not
// nearly all of it on one set: such strategies are pipelines where the case has micro-batches.
bool is_staged(const Case& c, const Actions& actions);

// A strategy of a case, and what it has been simulated to come to.
struct Scored {
  Actions actions;
  search::Evaluation evaluation;
};

// A plan to imitate, in actions.
struct Lesson {
  Actions actions;
  double step_seconds = 0;  // of the plan, which the actions come near to
  friend bool operator==(const Lesson&, const Lesson&) = default;
};

// The state of a case that a checkpoint keeps.
struct CaseState {
  RewardAverage average;
  std::optional<Scored> best;    // of all that was simulated
  bool taught = false;           // whether the teacher has been asked
  std::optional<Lesson> lesson;  // its answer, where something fits
  search::Evaluation baseline;   // the best of EV/CP × PS/AR; step 0: not simulated yet
};

// The order of all strategies of a problem: of decide::kSearchedOrders that in which the product
// of the steps of even all-reduce and of even parameter servers is least. Ranks that know no queue
// make transfers of servers late, and matter little to all-reduce.
decide::OrderPolicy find_order(oracle::BatchEvaluator& evaluator);

// For staged strategies of a case: of decide::kPipelineParts the number of micro-batches in which
// the groups in blocks on single devices take the shortest step, or 1.
std::int64_t find_micro_batches(const Case& c, oracle::BatchEvaluator& evaluator);

Case make_case(std::string name, std::unique_ptr<const cost::Problem> problem,
               const Schedule& schedule, space::ActionTable actions = space::ActionTable::kHeterog);
// Every graph × batch × cluster of the config, in that order, then the random ones. `stopped` is
// asked before each: once it is true, this throws; empty: never.
std::vector<Case> load_cases(const TrainConfig& config, const std::function<bool()>& stopped = {});

// The same graph, costs and cluster with at most `max_groups` groups: the layers of
// search::make_chain, forward and backward pass of each together, so that stages of pipelines are
// stretches of groups.
std::unique_ptr<const cost::Problem> regrouped(const cost::Problem& problem, int max_groups);

// The strategy of `actions` in the case's schedule.
decide::Strategy strategy_of(const Case& c, const Actions& actions);
// With its units spelled out, so that it fits the problem whatever that problem's own groups are.
decide::Strategy standalone_strategy(const Case& c, const Actions& actions);

// Strategies that everybody knows: every group by one of space::kReplicated, in their order; then
// the groups in contiguous blocks on single devices, in proportion to their memory and their speed.
std::vector<Actions> plain_strategies(const Case& c);

// Asks an oracle about strategies of a case. Their units are spelled out.
using Measure = std::function<std::vector<oracle::Measured>(
    const Case& c, std::span<const decide::Strategy> strategies)>;
// The simulator's answers, on these threads. Its memory is given back after each call: that of all
// cases would be too much.
Measure simulated(ThreadPool& threads);

// Parallel to `samples`.
std::vector<search::Evaluation> evaluate_samples(const Case& c, std::span<const Actions> samples,
                                                 const Measure& measure);

// Keeps the best; of equals the older.
void keep_best(std::optional<Scored>& best, std::span<const Actions> samples,
               std::span<const search::Evaluation> evaluations);

}  // namespace heterog::learn

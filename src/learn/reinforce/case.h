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
#include "learn/formula/terms.h"
#include "learn/network/network.h"
#include "learn/reinforce/reinforce.h"
#include "oracle/batch_evaluator.h"
#include "search/planner.h"
#include "space/action_space.h"

namespace heterog::learn {

// Immutable.
struct Case {
  std::string name;
  std::unique_ptr<const cost::Problem> problem;  // on the policy's groups
  std::unique_ptr<const space::ActionSpace> space;
  learn::FeatureTensors features;
  // Of a policy that begins as the formula; else null.
  std::unique_ptr<const FormulaTerms> formula;
  // Of all strategies, but of the formula's policy, which draws it.
  decide::OrderPolicy order = decide::OrderPolicy::kRank;
};

// How many numbers a strategy of the case is: an action a group and, of the formula's policy, a
// value a knob.
std::size_t decision_count(const Case& c);
// How many values the i-th of them may have.
std::size_t decision_values(const Case& c, std::size_t i);

// A strategy of a case, and what it has been simulated to come to.
struct Scored {
  Actions actions;
  search::Evaluation evaluation;
};

// The state of a case that a checkpoint keeps.
struct CaseState {
  RewardAverage average;
  std::optional<Scored> best;  // of all that was simulated
  // The best of EV/CP × PS/AR, or the formula's plan; step 0: not simulated yet.
  search::Evaluation baseline;
};

// The order of all strategies of a problem: of decide::kSearchedOrders that in which the product
// of the steps of even all-reduce and of even parameter servers is least. Ranks that know no queue
// make transfers of servers late, and matter little to all-reduce.
decide::OrderPolicy find_order(oracle::BatchEvaluator& evaluator);

Case make_case(std::string name, std::unique_ptr<const cost::Problem> problem,
               decide::OrderPolicy order, const TrainConfig& config);

// The same graph, costs and cluster with at most `max_groups` groups: the layers of
// search::make_chain, forward and backward pass of each together, so that stages of pipelines are
// stretches of groups.
std::unique_ptr<const cost::Problem> regrouped(const cost::Problem& problem, int max_groups);

// The strategy of `actions` in the case's schedule.
decide::Strategy strategy_of(const Case& c, const Actions& actions);
// With its units spelled out, so that it fits the problem whatever that problem's own groups are.
decide::Strategy standalone_strategy(const Case& c, const Actions& actions);
// The formula's estimate of the fullest device, as the logarithm of the bytes that it holds over
// what it may; 0 without a formula.
double memory_need(const Case& c, const Actions& actions);

// What a policy proposes of a case without drawing, the most likely strategy first: `count` of
// them, or as many as there are, those of the formula alone among them. By a head that decides
// every group by itself, one.
std::vector<Actions> likely_strategies(const Case& c, const Said& said, std::size_t count);

// What is simulated of a case before anything is drawn. Every group by one of space::kReplicated,
// in their order; then the groups in contiguous blocks on single devices, in proportion to their
// memory and their speed. For the formula's policy: the plan that the formula finds fastest.
std::vector<Actions> first_strategies(const Case& c);

// Asks an oracle about strategies of a case. Their units are spelled out.
using Measure = std::function<std::vector<oracle::Measured>(
    const Case& c, std::span<const decide::Strategy> strategies)>;
// The simulator's answers, on these threads, without improving orders: pipelines, most of the time
// of training, would take twice as long. What is no pipeline counts as it is once its shares are
// settled, in so many rounds. Memory is given back after each call: that of all cases would be too
// much.
Measure simulated(ThreadPool& threads, int settling_rounds = 0);

// Parallel to `samples`.
std::vector<search::Evaluation> evaluate_samples(const Case& c, std::span<const Actions> samples,
                                                 const Measure& measure);

// Keeps the best; of equals the older.
void keep_best(std::optional<Scored>& best, std::span<const Actions> samples,
               std::span<const search::Evaluation> evaluations);

}  // namespace heterog::learn

// The exact planner against all of its space, tried one by one.
#include "search/engines/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decide/decisions.h"
#include "oracle/simulated_oracle.h"
#include "search/pipeline/chain.h"
#include "search/problems.h"
#include "space/action_space.h"

namespace heterog::search {
namespace {

class ExactTest : public testing::Test {
 protected:
  PlannerResult plan(const cost::Problem& problem, const std::string& request, Budget budget = {}) {
    const Registry registry(builtin_planners());
    oracle::SimulatedOracle oracle(problem, pool_);
    PlannerContext context{.oracle = oracle, .budget = std::move(budget)};
    return registry.make(request, *problem.cluster)->plan(context);
  }
  ThreadPool pool_{1};
};

// Every action of every unit in every order, counted up as a number of many digits.
Nanoseconds fastest_placement(const cost::Problem& problem, ThreadPool& pool, std::size_t units) {
  const Chain chain = make_chain(problem, units);
  const space::ActionSpace actions(problem);
  oracle::SimulatedOracle oracle(problem, pool);
  BatchEvaluator evaluator(oracle);
  std::vector<std::size_t> digits(chain.layers.size(), 0);
  Nanoseconds fastest = std::numeric_limits<Nanoseconds>::max();
  while (true) {
    decide::Strategy strategy;
    for (OpId op : problem.graph->op_ids()) {
      strategy.unit_of_op.push_back(UnitId(chain.layer_of[op]));
    }
    for (std::size_t digit : digits) {
      strategy.units.push_back(actions.decision(space::ActionId(digit)));
    }
    std::vector<decide::Strategy> orders;
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      orders.push_back(strategy);
      orders.back().order = order;
    }
    for (const Measured& measured : evaluator.evaluate(orders)) {
      if (measured.evaluation.feasible) fastest = std::min(fastest, measured.evaluation.step);
    }
    std::size_t d = 0;
    while (d < digits.size() && ++digits[d] == actions.size()) digits[d++] = 0;
    if (d == digits.size()) return fastest;
  }
}

TEST_F(ExactTest, FindsTheBestOfAllPlacements) {
  for (const char* model : {"lenet5-tiny", "alexnet-tiny", "vgg19-tiny"}) {
    SCOPED_TRACE(model);
    const auto problem = load_test_problem(model, "heterog-4gpu", 16);
    const PlannerResult found = plan(*problem, "exact:units=3,layers=0");
    EXPECT_EQ(found.evaluation.step, fastest_placement(*problem, pool_, 3));
    EXPECT_THAT(found.found_by, testing::HasSubstr("exact: the best of "));
  }
}

// Of four devices, 50 choices make two stages and 60 make three; three layers have two cuts for the
// one and one for the other; 5 numbers of micro-batches, 3 schedules, strictly or not.
TEST_F(ExactTest, TriesEveryPipeline) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-4gpu", 16);
  const PlannerResult found = plan(*problem, "exact:units=0,layers=3");
  EXPECT_EQ(found.found_by, "exact: the best of 4800 pipelines of 3 layers, not of all plans");
  EXPECT_TRUE(found.evaluation.feasible);
}

TEST_F(ExactTest, SaysThatItHasNotFinished) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  const PlannerResult found = plan(*problem, "exact:units=6", {.evaluations = 50});
  EXPECT_EQ(found.evaluations, 50);
  EXPECT_THAT(found.found_by, testing::HasSubstr("exact, not finished: the best of "));
}

TEST_F(ExactTest, RefusesLargeClusters) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-8gpu", 16);
  EXPECT_THROW(plan(*problem, "exact"), Error);
}

}  // namespace
}  // namespace heterog::search

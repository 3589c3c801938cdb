// The exact planner against all of its space, tried one by one.
#include "search/engines/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decide/decisions.h"
#include "oracle/simulated_oracle.h"
#include "search/pipeline/chain.h"
#include "search/placement/placement_graph.h"
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

// Two layers and a loss: few enough sets that each is placed by itself.
std::unique_ptr<const cost::Problem> small_problem(const std::string& graph,
                                                   const std::string& cluster) {
  return cost::make_problem(std::make_shared<const graph::ModelGraph>(
                                graph::read_graph("tests/data/" + graph + ".json.gz")),
                            std::make_shared<const cluster::Cluster>(
                                cluster::load_cluster("configs/clusters/" + cluster + ".json")),
                            cost::CalibratedModel(), 16);
}

// (b) ≤ (a) ≤ all that place operators; (a) is the best of all placements, one by one.
TEST_F(ExactTest, NoPlacementOfOperatorsIsShorter) {
  for (const char* model : {"mlp_sgd", "mlp_adam_squares", "partly_tied"}) {
    for (const char* cluster : {"fastt-2gpu", "workstation-3090-4090"}) {
      SCOPED_TRACE(std::string(model) + " on " + cluster);
      const auto problem = small_problem(model, cluster);
      const PlannerResult by_rank = plan(*problem, "exact:space=ops");
      EXPECT_THAT(by_rank.found_by, testing::HasSubstr("sets of operators by rank, not of all"));
      const PlannerResult in_all =
          plan(*problem, "exact:space=ops,orders=all", {.evaluations = 3000});
      EXPECT_FALSE(better(by_rank.evaluation, in_all.evaluation));
      for (const char* name : {"fastt-dpos", "m-topo", "m-etf", "m-sct", "metis", "dfs-topo",
                               "order-place", "celeritas"}) {
        const auto found = plan(*problem, std::string(name) + ":order=rank").evaluation;
        EXPECT_FALSE(better(found, by_rank.evaluation)) << name;
      }
      const PlacementGraph graph = make_placement_graph(*problem, Backward::kWithForward);
      oracle::SimulatedOracle oracle(*problem, pool_);
      BatchEvaluator evaluator(oracle);
      Nanoseconds fastest = std::numeric_limits<Nanoseconds>::max();
      for (std::uint32_t bits = 0; bits < 1u << graph.set_bytes.size(); ++bits) {
        Placement placement;
        for (NodeId node : graph.nodes()) {
          placement.push_back(DeviceId(bits >> graph.set_of[node].value() & 1u));
        }
        fastest =
            std::min(fastest, evaluator.evaluate(placed(graph, placement, {})).evaluation.step);
      }
      EXPECT_EQ(by_rank.evaluation.step, fastest);
    }
  }
}

TEST_F(ExactTest, PlacesStretchesWhereThereAreManySets) {
  const auto problem = load_test_problem("vgg19-tiny", "fastt-2gpu", 16);
  EXPECT_THAT(plan(*problem, "exact:units=5,space=ops").found_by,
              testing::HasSubstr("32 placements of 5 stretches of layers by rank"));
  const auto four = load_test_problem("resnet50-tiny", "heterog-4gpu", 16);
  EXPECT_THROW(plan(*four, "exact:units=12,space=ops", {.evaluations = 10}), Error);  // 4^12
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

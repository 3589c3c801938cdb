// The learned planner as a planner: never worse than a baseline, reproducible by evaluations.
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "decide/decisions.h"
#include "learn/api.h"
#include "learn/network/problems.h"
#include "oracle/simulated_oracle.h"
#include "search/starts/baselines.h"

namespace heterog::learn {
namespace {

class PolicyPlannerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / "heterog-policy-planner-test";
    TrainConfig config;
    config.graphs = {{"models/vgg19-tiny.json.gz", {32}}};
    config.clusters = {"configs/clusters/heterog-4gpu.json"};
    config.steps = 2;
    config.max_groups = 12;
    path_ = train(config, {.out_dir = folder_.string()}).policy_path;
    config.actions = "formula";
    formula_path_ = train(config, {.out_dir = (folder_ / "formula").string()}).policy_path;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static search::PlannerResult plan(const cost::Problem& problem, int threads,
                                    search::Budget budget,
                                    std::vector<search::Setting> settings = {},
                                    const std::string& path = path_) {
    ThreadPool pool(threads);
    oracle::SimulatedOracle oracle(problem, pool);
    search::PlannerContext context{.oracle = oracle, .rng = Rng(5), .budget = std::move(budget)};
    settings.push_back({"checkpoint", path});
    return policy_planner_entry().make(settings, *problem.cluster)->plan(context);
  }

  static inline std::filesystem::path folder_;
  static inline std::string path_, formula_path_;
};

TEST_F(PolicyPlannerTest, NeverWorseThanABaseline) {
  for (const auto& [graph, batch] : {std::pair{"vgg19-tiny", 64}, std::pair{"resnet50-tiny", 32},
                                     std::pair{"bert_large24-tiny", 16}}) {
    const auto problem = test_problem(graph, "heterog-8gpu", batch, 2000);
    const auto result = plan(*problem, 2, {});
    oracle::Evaluator evaluator(*problem);
    EXPECT_EQ(evaluator.evaluate(result.strategy).step, result.evaluation.step);
    for (const auto& baseline : search::baseline_strategies(*problem)) {
      EXPECT_FALSE(search::better(evaluator.evaluate(baseline.strategy), result.evaluation))
          << graph << " " << baseline.name;
    }
  }
}

TEST_F(PolicyPlannerTest, BudgetOfEvaluationsIsKeptAndReproducible) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  const auto a = plan(*problem, 1, {.evaluations = 120});
  const auto b = plan(*problem, 2, {.evaluations = 120});
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.evaluation.step, b.evaluation.step);
  EXPECT_LE(a.evaluations, 120);
  EXPECT_GT(a.evaluations, 60);
}

// Nor, where the network alone is asked, than any action of its table that all groups take.
TEST_F(PolicyPlannerTest, NoRowOfItsTableBeatsTheMostLikelyAnswer) {
  for (const auto& [graph, cluster, batch] : {std::tuple{"vgg19-tiny", "heterog-8gpu", 64},
                                              std::tuple{"bert_large24-tiny", "heterog-8gpu", 16},
                                              std::tuple{"resnet50-tiny", "office-mixed", 32}}) {
    const auto problem = test_problem(graph, cluster, batch, 2000);
    const auto result = plan(*problem, 2, {}, {{"answer", "likely"}});
    oracle::Evaluator evaluator(*problem);
    EXPECT_EQ(evaluator.evaluate(result.strategy).step, result.evaluation.step);
    const space::ActionSpace actions(*problem, action_table(Policy::load(path_).config()));
    for (space::ActionId row : actions.ids()) {
      decide::Strategy uniform = uniform_strategy(*problem, actions.decision(row));
      for (const decide::OrderPolicy order : decide::kSearchedOrders) {
        uniform.order = order;
        EXPECT_FALSE(search::better(evaluator.evaluate(uniform), result.evaluation))
            << graph << " " << actions.name(row);
      }
    }
  }
}

// As a baseline does, which has the same replicas in every order.
TEST_F(PolicyPlannerTest, TheMostLikelyStrategyCountsAtItsBestOrderAndBuckets) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  ThreadPool threads(1);
  oracle::SimulatedOracle oracle(*problem, threads);
  oracle::BatchEvaluator evaluator(oracle, {});
  decide::Strategy likely = propose(Policy::load(path_), evaluator, 0, Rng(5)).front();
  const auto result = plan(*problem, 1, {}, {{"answer", "likely"}});
  EXPECT_EQ(result.found_by == "policy", result.strategy.units == likely.units);
  int worse = 0;
  for (const Bytes buckets : {Bytes{0}, decide::kHorovodBucketBytes}) {
    for (const decide::OrderPolicy order : decide::kSearchedOrders) {
      likely.order = order;
      likely.bucket_bytes = buckets;
      const search::Evaluation other = evaluator.evaluate(likely).evaluation;
      EXPECT_FALSE(search::better(other, result.evaluation));
      worse += search::better(result.evaluation, other);
    }
  }
  EXPECT_GT(worse, 0);
}

// Of the policy that begins as the formula: ten plans at most, and none of its proposals is better.
TEST_F(PolicyPlannerTest, TheFormulasPolicyAloneTakesTenPlans) {
  for (const auto& [graph, batch] :
       {std::pair{"vgg19-tiny", 64}, std::pair{"bert_large24-tiny", 16}}) {
    const auto problem = test_problem(graph, "heterog-8gpu", batch, 2000);
    const auto result = plan(*problem, 2, {}, {{"answer", "likely"}}, formula_path_);
    EXPECT_LE(result.evaluations, 10);
    ThreadPool threads(1);
    oracle::SimulatedOracle oracle(*problem, threads);
    oracle::BatchEvaluator evaluator(oracle, {});
    EXPECT_EQ(evaluator.evaluate(result.strategy).evaluation.step, result.evaluation.step);
    const auto proposed = propose(Policy::load(formula_path_), evaluator, 5, Rng(5));
    EXPECT_EQ(evaluator.evaluations(), 1);  // proposing simulates nothing
    ASSERT_EQ(proposed.size(), 6u);
    for (const decide::Strategy& one : proposed) {
      EXPECT_FALSE(search::better(evaluator.evaluate(one).evaluation, result.evaluation)) << graph;
    }
  }
}

// Shorter than all that it proposes, whose stages and numbers of micro-batches are estimates'.
TEST_F(PolicyPlannerTest, PipelinesAreThoseOfPassesOfLayers) {
  const auto problem = test_problem("bert_large24", "spp-a", 16, 2000);
  const auto result = plan(*problem, 2, {}, {{"answer", "likely"}}, formula_path_);
  EXPECT_GT(result.strategy.micro_batches, 1);
  EXPECT_LE(result.evaluations, 10);
  ThreadPool threads(1);
  oracle::SimulatedOracle oracle(*problem, threads);
  oracle::BatchEvaluator evaluator(oracle, {});
  for (const auto& one : propose(Policy::load(formula_path_), evaluator, 31, Rng(5))) {
    EXPECT_GT(evaluator.evaluate(one).evaluation.step, result.evaluation.step);
  }
}

TEST_F(PolicyPlannerTest, SearchesFromItsProposals) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  const auto a = plan(*problem, 1, {.evaluations = 150}, {{"answer", "searched"}}, formula_path_);
  const auto b = plan(*problem, 2, {.evaluations = 150}, {{"answer", "searched"}}, formula_path_);
  EXPECT_EQ(a.strategy, b.strategy);
  const auto alone = plan(*problem, 1, {}, {{"answer", "likely"}}, formula_path_);
  EXPECT_FALSE(search::better(alone.evaluation, a.evaluation));
}

}  // namespace
}  // namespace heterog::learn

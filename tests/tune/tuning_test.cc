// The loop of `heterog tune` where costs are hidden, and where runs are told what they measure.
#include "tune/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/thread_pool.h"
#include "cluster/cluster_io.h"
#include "cost/hidden.h"
#include "decide/layout.h"
#include "graph/graph_io.h"
#include "oracle/evaluator.h"
#include "oracle/simulated_oracle.h"
#include "search/portfolio/portfolio.h"
#include "tune/hidden_trial.h"

namespace heterog::tune {
namespace {

constexpr std::int64_t kEvaluations = 60;  // of each planning: the tests ask for the loop

std::shared_ptr<const cost::Problem> problem_of(const std::string& model,
                                                const std::string& cluster, std::int64_t batch) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      cost::CalibratedModel(), batch);
}

class Portfolio final : public search::Planner {
 public:
  search::PlannerResult plan(search::PlannerContext& context) const override {
    return search::best_plan(context);
  }
};

Proposals plans(const cost::Problem& costs, const decide::Strategy* kept) {
  ThreadPool threads(1);
  oracle::SimulatedOracle oracle(costs, threads);
  search::PlannerContext context{.oracle = oracle, .budget = {.evaluations = kEvaluations}};
  return plan_again(context, Portfolio(), "portfolio", kept);
}

using World = std::shared_ptr<const cost::Problem>;

World world_of(const cost::Problem& believed, std::uint64_t seed) {
  return cost::hidden_problem(believed, {.seed = seed, .spread = 0.4});
}

Tuned tuned_in(const std::shared_ptr<const cost::Problem>& believed, const World& world,
               const TuneOptions& options = {}) {
  return tune(
      believed, plans,
      [&](const auto& costs, const decide::Strategy& strategy) {
        return hidden_trial(costs, world, strategy, {});
      },
      options);
}

// Of what is planned with the world's costs, and of what was found without them.
double best_in(const cost::Problem& world, const Tuned& tuned) {
  return std::min(
      tuned.kept_round().measured_seconds,
      to_seconds(plans(world, &tuned.kept_round().planned.strategy).plans.front().evaluation.step));
}

TEST(Tuning, ComesNearTheBestOfAHiddenWorld) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  double first = 0, kept = 0;
  constexpr int kWorlds = 4;
  for (int seed = 0; seed < kWorlds; ++seed) {
    const World world = world_of(*believed, static_cast<std::uint64_t>(seed));
    const Tuned tuned = tuned_in(believed, world);
    const double best = best_in(*world, tuned);
    first += std::log(tuned.rounds.front().measured_seconds / best) / kWorlds;
    kept += std::log(tuned.kept_round().measured_seconds / best) / kWorlds;
  }
  SCOPED_TRACE(testing::Message() << first << " " << kept);
  EXPECT_GT(first, 0.06);
  EXPECT_LT(kept, 0.03);
}

TEST(Tuning, EndsAfterOneRoundWhereCostsAreAsBelieved) {
  const auto believed = problem_of("vgg19", "fastt-4gpu", 64);
  const Tuned tuned = tuned_in(believed, believed);
  EXPECT_EQ(tuned.rounds.size(), 1u);
  EXPECT_TRUE(tuned.settled);
  EXPECT_LT(tuned.next_gain, 0.01);
  EXPECT_EQ(tuned.gain(), 0);
  // Nothing is off, so the fit changes nothing that is not rounding.
  oracle::Evaluator fitted(*tuned.fitted.problem);
  EXPECT_NEAR(to_seconds(fitted.evaluate(tuned.kept_round().planned.strategy).step) /
                  tuned.rounds[0].measured_seconds,
              1, 1e-3);
}

// Trials of a world, whose step is said to take what the test says.
struct Told {
  const World& world;
  std::vector<double> seconds;
  std::size_t runs = 0;

  Trial operator()(const std::shared_ptr<const cost::Problem>& costs,
                   const decide::Strategy& strategy) {
    Trial trial = hidden_trial(costs, world, strategy, {});
    trial.seconds = seconds.at(runs++);
    return trial;
  }
};

TEST(Tuning, KeepsThePlanThatWasMeasuredToBeTheShortest) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  const World world = world_of(*believed, 1);
  const auto kept_of = [&](std::vector<double> seconds) {
    Told told{world, std::move(seconds)};
    const Tuned tuned = tune(believed, plans, std::ref(told), {.rounds = 3, .least_gain = -1});
    EXPECT_EQ(tuned.rounds.size(), 3u);
    return std::pair(tuned.kept, tuned.gain());
  };
  EXPECT_EQ(kept_of({1, 2, 3}), std::pair(std::size_t{0}, 0.0));
  EXPECT_EQ(kept_of({3, 1.5, 2}), std::pair(std::size_t{1}, 1.0));
  EXPECT_EQ(kept_of({3, 3, 2}), std::pair(std::size_t{2}, 0.5));
}

// What was measured of the kept plan counts, whatever is predicted of it by now.
TEST(Tuning, EndsWhereNoPlanPromisesLessThanWasMeasured) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  const World world = world_of(*believed, 1);
  Told told{world, {1e-6}};
  const Tuned tuned = tune(believed, plans, std::ref(told), {});
  EXPECT_EQ(tuned.rounds.size(), 1u);
  EXPECT_TRUE(tuned.settled);
  EXPECT_LT(tuned.next_gain, -0.9);
}

// The compiler chooses servers by costs. Other costs would choose others; the plan that was run has
// those that it was run with.
TEST(Tuning, APlanKeepsTheServersThatItWasRunWith) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  const decide::Strategy served = decide::uniform_strategy(
      *believed, decide::even_decision(*believed, decide::SyncMethod::kParameterServer));
  const auto servers = [&](const cost::Problem& costs, const decide::Strategy& strategy) {
    const decide::Layout layout = decide::lay_out(costs, strategy);
    std::vector<DeviceId> found;
    for (const TensorId parameter : costs.graph->parameters()) {
      found.push_back(layout.home(parameter).server);
    }
    return found;
  };
  bool others = false;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const World world = world_of(*believed, seed);
    const Tuned tuned = tune(
        believed,
        [&](const cost::Problem&, const decide::Strategy*) {
          return Proposals{.plans = {{served, {.step = 1, .feasible = true}, "ev-ps"}}};
        },
        [&](const auto& costs, const decide::Strategy& strategy) {
          return hidden_trial(costs, world, strategy, {});
        },
        {.rounds = 1});
    const std::vector<DeviceId> ran = servers(*believed, served);
    EXPECT_EQ(servers(*tuned.fitted.problem, tuned.rounds[0].ran), ran);
    EXPECT_EQ(servers(*world, tuned.rounds[0].ran), ran);
    others |= servers(*tuned.fitted.problem, served) != ran;
  }
  EXPECT_TRUE(others);
}

TEST(Tuning, RunsNoMorePlansThanItMay) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  const World world = world_of(*believed, 1);
  const Tuned one = tuned_in(believed, world, {.rounds = 1});
  EXPECT_EQ(one.rounds.size(), 1u);
  EXPECT_FALSE(one.settled);
  // A plan that promises anything less is not run.
  const Tuned none = tuned_in(believed, world, {.rounds = 5, .least_gain = 10});
  EXPECT_EQ(none.rounds.size(), 1u);
  EXPECT_TRUE(none.settled);
}

TEST(Tuning, PassesOnWhatARunFailsWithAfterTheRoundsBefore) {
  const auto believed = problem_of("vgg19", "office-mixed", 96);
  const World world = world_of(*believed, 1);
  Told told{world, {2, 1}};
  std::vector<std::size_t> seen;
  EXPECT_THROW(tune(
                   believed, plans,
                   [&](const auto& costs, const decide::Strategy& strategy) {
                     if (told.runs == 2) throw Error(ErrorKind::kVerification, "rank 1: lost");
                     return told(costs, strategy);
                   },
                   {.rounds = 5, .least_gain = -1},
                   [&](const Tuned& so_far) { seen.push_back(so_far.kept); }),
               Error);
  EXPECT_THAT(seen, testing::ElementsAre(0, 1));
}

}  // namespace
}  // namespace heterog::tune

// The best of what an oracle was asked about is kept, whatever whoever asked made of it.
#include "oracle/best_seen.h"

#include <gtest/gtest.h>

#include "oracle/simulated_oracle.h"
#include "search/answers/better_order.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::oracle {
namespace {

using search::even_all_reduce;
using search::even_ps;
using search::load_test_problem;
using search::single_device;

TEST(BestSeen, IsTheBestThatWasAskedAbout) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  ThreadPool threads(2);
  SimulatedOracle simulator(*problem, threads);
  BestSeen oracle(simulator);
  EXPECT_FALSE(oracle.best());
  const std::vector<decide::Strategy> strategies = {single_device(*problem, DeviceId(3)),
                                                    even_all_reduce(*problem), even_ps(*problem),
                                                    single_device(*problem, DeviceId(0))};
  const std::vector<Measured> measured = oracle.measure(strategies);
  EXPECT_EQ(oracle.evaluations(), 4);
  for (const Measured& one : measured) {
    EXPECT_FALSE(better(one.evaluation, oracle.best()->evaluation));
  }
  const Measured again = simulator.measure({&oracle.best()->strategy, 1})[0];
  EXPECT_EQ(again.evaluation.step, oracle.best()->evaluation.step);
  // What is worse does not take its place.
  oracle.measure(std::span(strategies).subspan(0, 1));
  EXPECT_EQ(oracle.best()->evaluation.step, again.evaluation.step);
  // The rounds of an order are strategies too.
  const decide::Strategy served = even_ps(*problem);
  BestSeen of_rounds(simulator);
  const auto ordered = search::better_order(of_rounds, served, 4);
  ASSERT_TRUE(ordered);
  EXPECT_EQ(of_rounds.best()->evaluation.step, ordered->evaluation.step);
  const Measured anew = simulator.measure({&of_rounds.best()->strategy, 1})[0];
  EXPECT_EQ(anew.evaluation.step, ordered->evaluation.step);
}

// Whenever a search is cut off, what is left is the best of what it had simulated; left alone, what
// it returns.
TEST(BestSeen, IsLeftOfASearchThatIsCutOff) {
  const auto problem = load_test_problem("vgg19-tiny", "heterog-4gpu", 16);
  ThreadPool threads(1);
  int left = 0;
  const auto best_after = [&](int plans) {
    left = plans;
    SimulatedOracle simulator(*problem, threads, {}, [&] { return --left < 0; });
    BestSeen oracle(simulator);
    search::PlannerContext context{.oracle = oracle, .rng = Rng(0)};
    try {
      const search::PlannerResult found = search::best_plan(context, {});
      EXPECT_EQ(oracle.best()->evaluation.step, found.evaluation.step);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "stopped by the caller");
    }
    return oracle.best() ? oracle.best()->evaluation : Evaluation{};
  };
  EXPECT_EQ(best_after(1).step, 0);  // its first call had not returned
  const Evaluation early = best_after(60);
  const Evaluation late = best_after(1'000'000);
  EXPECT_TRUE(early.feasible);
  EXPECT_TRUE(better(late, early));
}

}  // namespace
}  // namespace heterog::oracle

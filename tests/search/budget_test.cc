// More budget is never a longer step.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "oracle/simulated_oracle.h"
#include "search/portfolio/portfolio.h"
#include "search/problems.h"
#include "search/starts/starts.h"

namespace heterog::search {
namespace {

struct BudgetCase {
  const char* model;
  const char* cluster;
  std::int64_t batch;
};

class MoreBudget : public testing::TestWithParam<BudgetCase> {};

TEST_P(MoreBudget, IsNeverALongerStep) {
  const auto problem = load_test_problem(GetParam().model, GetParam().cluster, GetParam().batch);
  ThreadPool threads(2);
  oracle::SimulatedOracle oracle(*problem, threads);
  const auto plan = [&](Budget budget) {
    PlannerContext context{.oracle = oracle, .rng = Rng(0), .budget = std::move(budget)};
    return best_plan(context, {}).evaluation;
  };
  const Evaluation one_shot = plan({});
  Evaluation before = plan({.evaluations = 100});
  for (std::int64_t evaluations : {400, 2000}) {
    const Evaluation now = plan({.evaluations = evaluations});
    EXPECT_FALSE(better(before, now))
        << evaluations << ": " << to_seconds(before.step) << " before, " << to_seconds(now.step);
    if (evaluations > 2 * one_shot_evaluations(*problem)) {
      EXPECT_FALSE(better(one_shot, now));
    }
    before = now;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MoreBudget,
                         testing::Values(BudgetCase{"bert_large24-tiny", "spp-a", 16},
                                         BudgetCase{"bert_large24-tiny", "heterog-8gpu", 48},
                                         BudgetCase{"gnmt4-tiny", "heterog-4gpu", 32},
                                         BudgetCase{"transformer6-tiny", "spp-b", 24},
                                         BudgetCase{"vgg19-tiny", "heterog-8gpu", 192},
                                         BudgetCase{"mobilenet_v2-tiny", "heterog-8gpu", 64},
                                         BudgetCase{"inception_v3-tiny", "heterog-4gpu", 64},
                                         BudgetCase{"xlnet_large24-tiny", "heterog-8gpu", 48},
                                         BudgetCase{"lstm_lm-tiny", "heterog-4gpu", 64}),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.model) + "_" + info.param.cluster;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A clock: how many it has simulated.
class CountingOracle final : public oracle::Oracle {
 public:
  explicit CountingOracle(Oracle& asked) : asked_(asked) {}
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override {
    simulated += static_cast<double>(strategies.size());
    return asked_.measure(strategies);
  }
  const cost::Problem& problem() const override { return asked_.problem(); }

  double simulated = 0;

 private:
  Oracle& asked_;
};

TEST(BudgetOfTime, ThatPaysForOneShotFindsNoLess) {
  for (const char* model : {"bert_large24-tiny", "lstm_lm-tiny", "xlnet_large24-tiny"}) {
    const auto problem = load_test_problem(model, "heterog-8gpu", 48);
    ThreadPool threads(2);
    oracle::SimulatedOracle simulator(*problem, threads);
    const auto plan = [](CountingOracle& oracle, Budget budget) {
      PlannerContext context{.oracle = oracle, .rng = Rng(0), .budget = std::move(budget)};
      return best_plan(context, {}).evaluation;
    };
    CountingOracle counted(simulator), clock(simulator);
    const Evaluation one_shot = plan(counted, {});
    // More than that, as a part of the time is kept back for the last stages.
    const double whole = 1.3 * counted.simulated;
    const Evaluation now = plan(clock, {.time_used = [&] { return clock.simulated / whole; }});
    EXPECT_FALSE(better(one_shot, now))
        << model << ": " << to_seconds(one_shot.step) << " in one shot, " << to_seconds(now.step);
  }
}

}  // namespace
}  // namespace heterog::search

// More budget is never a longer step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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

}  // namespace
}  // namespace heterog::search

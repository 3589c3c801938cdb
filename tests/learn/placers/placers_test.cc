// Learned placements: draws, likelihoods, losses, and that they learn.
#include "learn/placers/placers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "learn/network/network.h"
#include "learn/network/problems.h"
#include "learn/placers/placement_loop.h"
#include "learn/placers/seq2seq.h"
#include "learn/reinforce/case.h"
#include "oracle/simulated_oracle.h"

namespace heterog::learn {
namespace {

TEST(Drawn, InvertsTheDistribution) {
  const double log_p[] = {std::log(0.5), std::log(0.25), -1e9, std::log(0.25)};
  EXPECT_EQ(drawn(log_p, 4, 0), 0);
  EXPECT_EQ(drawn(log_p, 4, 0.499), 0);
  EXPECT_EQ(drawn(log_p, 4, 0.501), 1);
  EXPECT_EQ(drawn(log_p, 4, 0.749), 1);
  EXPECT_EQ(drawn(log_p, 4, 0.751), 3);
  EXPECT_EQ(drawn(log_p, 4, 1 - 1e-16), 3);
}

FeatureTensors some_features() {
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 32, 2000);
  return to_tensors(make_features(*regrouped(*problem, 12)));
}

// Of all sequences of 3 out of 2 devices: they add up to 1, each is drawn as often as its
// probability says, and a device depends on the one before.
TEST(Seq2Seq, DrawsAreAsLikelyAsItSays) {
  use_one_network_thread();
  const SeededWeights weights(3);
  Seq2Seq network(5, 2);
  {
    // So that sequences differ in how likely they are.
    torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : network->parameters()) parameter.mul_(4);
  }
  const auto groups = torch::randn({3, 1, 5});
  std::vector<torch::Tensor> rows;
  for (int code = 0; code < 8; ++code) {
    rows.push_back(torch::tensor({code & 1, code >> 1 & 1, code >> 2 & 1}, torch::kInt64));
  }
  const auto log_p = network->likelihood(groups, torch::stack(rows)).log_p.sum(1);
  EXPECT_NEAR(log_p.exp().sum().item<double>(), 1, 1e-5);
  const auto second = network->likelihood(groups, torch::stack(rows)).log_p.select(1, 1);
  EXPECT_GT(std::abs(second[2].item<double>() - second[3].item<double>()), 1e-3);

  constexpr int kDraws = 4000;
  const auto draws = network->draw(groups, kDraws, Rng(9));
  std::map<std::int64_t, int> count;
  for (int s = 0; s < kDraws; ++s) {
    ++count[draws[s][0].item<std::int64_t>() + 2 * draws[s][1].item<std::int64_t>() +
            4 * draws[s][2].item<std::int64_t>()];
  }
  for (int code = 0; code < 8; ++code) {
    const double p = std::exp(log_p[code].item<double>());
    EXPECT_NEAR(count[code], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << code;
  }
  // A sample depends on its own stream alone.
  EXPECT_TRUE(network->draw(groups, 7, Rng(9)).equal(draws.narrow(0, 0, 7)));
}

// One decision of two: d log π(0) / d logits = (1 − p, −p).
TEST(PlacerLoss, GradientIsThatOfReinforce) {
  auto logits = torch::tensor({{0.0, 0.0}}, torch::requires_grad());
  const auto log_p = torch::log_softmax(logits, 1);
  const Likelihood now{.log_p = log_p.narrow(1, 0, 1), .entropy = torch::zeros({})};
  const double advantage[] = {3.0};
  placer_loss(now, now.log_p.detach(), advantage, {}, 0).backward();
  EXPECT_NEAR(logits.grad()[0][0].item<double>(), -1.5, 1e-6);
  EXPECT_NEAR(logits.grad()[0][1].item<double>(), 1.5, 1e-6);
}

// Ratios of 1.5 and 0.5, cut at 1.2 and 0.8: what is good and already likelier, and what is bad and
// already less likely, pull no longer.
TEST(PlacerLoss, RatiosAreCut) {
  const Rule rule{.clip = 0.2};
  const auto before = torch::log(torch::tensor({{0.2}, {0.2}}));
  auto p = torch::tensor({{0.3}, {0.1}}, torch::requires_grad());
  const auto loss_of = [&](double first, double second) {
    const double advantage[] = {first, second};
    return placer_loss({.log_p = p.log(), .entropy = torch::zeros({})}, before, advantage, rule, 0);
  };
  EXPECT_NEAR(loss_of(1, -1).item<double>(), -(1.2 - 0.8) / 2, 1e-6);
  loss_of(1, -1).backward();
  EXPECT_EQ(p.grad().abs().sum().item<double>(), 0);
  EXPECT_NEAR(loss_of(-1, 1).item<double>(), -(-1.5 + 0.5) / 2, 1e-6);
  loss_of(-1, 1).backward();
  EXPECT_NEAR(p.grad()[0][0].item<double>(), 0.5 / 0.2, 1e-5);
  EXPECT_NEAR(p.grad()[1][0].item<double>(), -0.5 / 0.2, 1e-5);
}

// 0.7 of frequencies 1/2, 1/2, 0 and 0.3 of thirds.
TEST(Post, ImitatesByFrequencies) {
  const auto placer = make_post(1, 3);
  placer->imitate(torch::tensor({{0}, {1}, {1}, {0}}, torch::kInt64));
  const auto p = placer->likelihood(torch::tensor({{0}, {1}, {2}}, torch::kInt64)).log_p.exp();
  EXPECT_NEAR(p[0][0].item<double>(), 0.45, 1e-5);
  EXPECT_NEAR(p[1][0].item<double>(), 0.45, 1e-5);
  EXPECT_NEAR(p[2][0].item<double>(), 0.1, 1e-5);
}

TEST(Hrl, UnitsFollowTheirGroups) {
  const FeatureTensors features = some_features();
  const std::int64_t units = features.groups.size(0);
  const SeededWeights weights(1);
  const auto placer = make_hrl(features, 3);
  const auto draws = placer->draw(2, Rng(4));
  ASSERT_EQ(draws.size(1), units + 3);
  for (int s = 0; s < 2; ++s) {
    const std::vector<DeviceId> devices = placer->devices(draws[s]);
    ASSERT_EQ(static_cast<std::int64_t>(devices.size()), units);
    for (std::int64_t n = 0; n < units; ++n) {
      const auto group = draws[s][n].item<std::int64_t>();
      EXPECT_EQ(static_cast<std::int64_t>(devices[static_cast<std::size_t>(n)].value()),
                draws[s][units + group].item<std::int64_t>());
    }
  }
  EXPECT_EQ(placer->likelihood(draws).log_p.sizes(), draws.sizes());
}

// A step takes as long as many operators are elsewhere than on device 1.
class CountingOracle final : public oracle::Oracle {
 public:
  explicit CountingOracle(const cost::Problem& problem) : problem_(problem) {}
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override {
    std::vector<oracle::Measured> answers;
    for (const decide::Strategy& strategy : strategies) {
      Nanoseconds step = 1'000'000;
      for (OpId op : problem_.graph->op_ids()) {
        const DeviceId device = strategy.units[strategy.unit_of_op[op]].replicas.front().device;
        if (device != DeviceId(1)) step += 1'000'000;
      }
      answers.push_back(oracle::judge(problem_, step,
                                      IdVector<DeviceId, Bytes>(problem_.cluster->place_count())));
      ++asked;
    }
    return answers;
  }
  const cost::Problem& problem() const override { return problem_; }
  std::int64_t asked = 0;

 private:
  const cost::Problem& problem_;
};

class Placers : public testing::TestWithParam<const char*> {};

// In 600 draws of about 30 units on 4 devices none that nobody learns from has 70 % of its work
// right.
TEST_P(Placers, LearnWhereThingsBelong) {
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 32, 2000);
  CountingOracle oracle(*problem);
  search::PlannerContext context{.oracle = oracle, .rng = Rng(5), .budget = {.evaluations = 600}};
  const search::Registry registry(placer_entries());
  const auto found = registry.make(GetParam(), *problem->cluster)->plan(context);
  EXPECT_EQ(found.evaluations, oracle.asked);
  EXPECT_LE(found.evaluations, 600);
  const double ops = static_cast<double>(problem->graph->op_count());
  EXPECT_LT(static_cast<double>(found.evaluation.step) / 1e6 - 1, 0.3 * ops);
}

INSTANTIATE_TEST_SUITE_P(All, Placers, testing::Values("reinforce", "hrl", "post", "gdp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LearnPlacement, SmallBudgetsAndBatchesAreKept) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 2, 2000);
  for (const search::PlannerEntry& entry : placer_entries()) {
    ThreadPool threads(1);
    oracle::SimulatedOracle oracle(*problem, threads);
    search::PlannerContext context{.oracle = oracle, .rng = Rng(5), .budget = {.evaluations = 1}};
    const auto found = entry.make({}, *problem->cluster)->plan(context);
    EXPECT_EQ(found.evaluations, 1) << entry.name;
    EXPECT_GT(found.evaluation.step, 0);
  }
}

}  // namespace
}  // namespace heterog::learn

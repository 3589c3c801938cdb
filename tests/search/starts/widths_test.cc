// Sets of devices that change along the model: never longer, within the budget, and better than any
// one set for all layers where the network is slow.
#include "search/starts/widths.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "oracle/simulated_oracle.h"
#include "search/answers/shares.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::Strategy;

class Widths : public testing::Test {
 protected:
  void load(const std::string& model, const std::string& cluster, std::int64_t batch) {
    problem_ = load_test_problem(model, cluster, batch);
    groups_ = space::summarize_groups(*problem_);
  }
  void vary(Strategy start) {
    ThreadPool pool(2);
    oracle::SimulatedOracle oracle(*problem_, pool);
    BatchEvaluator evaluator(oracle);
    start.order = decide::OrderPolicy::kRankQueued;
    before_ = evaluator.evaluate(start).evaluation;
    varied_ = vary_widths(evaluator, groups_, {start, before_});
    EXPECT_FALSE(better(before_, varied_.evaluation));
    EXPECT_EQ(evaluator.evaluate(varied_.strategy).evaluation.step, varied_.evaluation.step);
  }
  // Parameter servers among these devices, in proportion to their samples.
  Strategy on(std::initializer_list<std::int64_t> samples) const {
    Strategy strategy = shares_strategy(*problem_, space::Samples(samples));
    for (auto& unit : strategy.units) unit.sync = decide::SyncMethod::kParameterServer;
    return strategy;
  }
  std::set<DeviceId> devices(GroupId group) const {
    std::set<DeviceId> devices;
    for (const auto& replica : varied_.strategy.units[UnitId(group.value())].replicas) {
      devices.insert(replica.device);
    }
    return devices;
  }
  double gain() const { return to_seconds(before_.step) / to_seconds(varied_.evaluation.step) - 1; }

  static constexpr GroupId kFirst{0};
  const std::set<DeviceId> a100s_{DeviceId(0), DeviceId(1)};
  std::unique_ptr<const cost::Problem> problem_;
  space::GroupSummaries groups_;
  Evaluation before_;
  Tried varied_;
};

// Two A100 behind 10 GbE: other devices pay for the convolutions, and not for the last layers,
// which have most of the parameters.
TEST_F(Widths, AddsIdleDevicesToTheFirstLayers) {
  load("vgg19", "office-mixed", 512);
  vary(on({256, 256, 0, 0, 0, 0, 0}));
  EXPECT_GT(gain(), 0.02);
  EXPECT_GT(devices(kFirst).size(), 2u);
  EXPECT_EQ(devices(GroupId(groups_.size() - 1)), a100s_);
}

TEST_F(Widths, LeavesTheLastLayersToTheFastestDevices) {
  load("vgg19", "office-mixed", 192);
  vary(on({64, 64, 20, 20, 12, 12, 0}));
  EXPECT_GT(gain(), 1);
  EXPECT_EQ(devices(kFirst).size(), 6u);
  EXPECT_EQ(devices(GroupId(groups_.size() - 1)), a100s_);
}

TEST_F(Widths, AddsDevicesToAllLayersWhereParametersAreFew) {
  load("mobilenet_v2", "office-mixed", 192);
  vary(on({96, 96, 0, 0, 0, 0, 0}));
  EXPECT_GT(gain(), 0.1);
  EXPECT_EQ(devices(kFirst).size(), 6u);
  EXPECT_EQ(devices(GroupId(groups_.size() - 1)).size(), 6u);
}

TEST_F(Widths, LeavesAloneWhatUsesDevicesThatAreAlike) {
  load("vgg19-tiny", "fastt-4gpu", 64);
  const Strategy even = even_all_reduce(*problem_);
  vary(even);
  EXPECT_EQ(varied_.strategy.units, even.units);
}

TEST_F(Widths, KeepsToTheBudget) {
  load("vgg19-tiny", "office-mixed", 16);
  const Strategy start = on({8, 8, 0, 0, 0, 0, 0});
  for (std::int64_t budget : {1, 4, 9, 30, 35}) {
    ThreadPool pool(1);
    oracle::SimulatedOracle oracle(*problem_, pool);
    BatchEvaluator evaluator(oracle, {.evaluations = budget});
    const Evaluation before = evaluator.evaluate(start).evaluation;
    const Tried varied = vary_widths(evaluator, groups_, {start, before});
    EXPECT_LE(evaluator.evaluations(), budget);
    EXPECT_FALSE(better(before, varied.evaluation));
  }
}

}  // namespace
}  // namespace heterog::search

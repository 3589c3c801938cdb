// No plan is faster than the least step: every strategy of small problems, and drawn ones of
// others.
#include "sim/least_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "compiler/compile.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "decide/problems.h"
#include "search/problems.h"
#include "sim/simulator.h"
#include "space/action_space.h"

namespace heterog::sim {
namespace {

Nanoseconds fastest_order(const cost::Problem& problem, decide::Strategy strategy) {
  sim::Simulator simulator;
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    strategy.order = order;
    const compiler::Plan plan = compiler::compile(problem, strategy);
    least = std::min(least, simulator.simulate(plan, order).step);
  }
  return least;
}

std::unique_ptr<const cost::Problem> grouped(const std::string& model, const std::string& cluster,
                                             std::int64_t batch, int groups) {
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      cost::CalibratedModel(), batch, {.max_groups = groups});
}

// The small network on machines of one device each; n samples take an op fixed + n · each seconds,
// updates nothing.
std::unique_ptr<const cost::Problem> affine_problem(double fixed, double each, std::size_t devices,
                                                    std::int64_t batch) {
  class Affine : public cost::CostModel {
   public:
    Affine(double fixed, double each) : fixed_(fixed), each_(each) {}
    double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                   const cluster::DeviceType&) const override {
      if (graph.op(op).phase == graph::Phase::kUpdate) return 0;
      return fixed_ + each_ * static_cast<double>(samples);
    }
    Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                          const cluster::DeviceType&) const override {
      return 0;
    }

   private:
    double fixed_, each_;
  };
  const auto plain = decide::toy_problem(support::tiny_mlp_graph(), devices, batch);
  return cost::make_problem(plain->graph, plain->cluster, Affine(fixed, each), batch);
}

// Hosts that serve take updates off the devices: here these take a microsecond on a host, and a
// millisecond on a device. A bound that knew of devices alone would be above what the plan takes.
TEST(LeastStep, KnowsOfUpdatesOnHosts) {
  class SlowUpdates : public cost::CostModel {
   public:
    double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t,
                   const cluster::DeviceType& type) const override {
      const bool update = graph.op(op).phase == graph::Phase::kUpdate;
      return update && type.name != "processor" ? 1e-3 : 1e-6;
    }
    Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                          const cluster::DeviceType&) const override {
      return 0;
    }
  };
  const auto plain = decide::served_problem(support::tiny_mlp_graph(), 2, {true, true}, 8);
  const auto problem = cost::make_problem(plain->graph, plain->cluster, SlowUpdates(), 8);
  const auto without = decide::served_problem(support::tiny_mlp_graph(), 2, {false, false}, 8);
  const auto devices = cost::make_problem(without->graph, without->cluster, SlowUpdates(), 8);
  const Nanoseconds step = fastest_order(
      *problem,
      decide::uniform_strategy(
          *problem, decide::even_decision(*problem, decide::SyncMethod::kParameterServer)));
  EXPECT_LE(least_step(*problem), step);
  EXPECT_GT(least_step(*devices), step);
}

// HeteroG's M + 4 actions for each of three groups, in every order.
TEST(LeastStep, IsBelowEveryStrategyOfSmallProblems) {
  for (const std::int64_t batch : {3, 64}) {
    const auto problem = grouped("lenet5-tiny", "heterog-4gpu", batch, 3);
    ASSERT_EQ(problem->grouping.count(), 3u);
    const Nanoseconds bound = least_step(*problem);
    const space::ActionSpace space(*problem);
    Nanoseconds best = std::numeric_limits<Nanoseconds>::max();
    const std::size_t actions = space.size();
    for (std::size_t i = 0; i < actions * actions * actions; ++i) {
      const std::vector<space::ActionId> chosen = {space::ActionId(i % actions),
                                                   space::ActionId(i / actions % actions),
                                                   space::ActionId(i / actions / actions)};
      best = std::min(best, fastest_order(*problem, space.strategy(chosen)));
    }
    EXPECT_LE(bound, best) << batch;
    EXPECT_GT(bound, best / 4) << batch;  // it says something
  }
}

// Shares of any size on any devices, in micro-batches, with and without recomputation.
TEST(LeastStep, IsBelowDrawnStrategies) {
  Rng rng(6);
  for (const char* model : {"vgg19-tiny", "transformer6-tiny", "resnet50-tiny"}) {
    const auto problem = search::load_test_problem(model, "heterog-8gpu", 48);
    const Nanoseconds bound = least_step(*problem);
    EXPECT_GT(bound, 0);
    for (int round = 0; round < 60; ++round) {
      const auto draw = [&] {
        decide::UnitDecision unit;
        for (std::size_t i = 1 + rng.below(8); i > 0; --i) {
          unit.replicas.push_back({DeviceId(rng.below(problem->cluster->device_count())),
                                   1 + static_cast<double>(rng.below(5))});
        }
        unit.sync = rng.below(2) == 0 ? decide::SyncMethod::kParameterServer
                                      : decide::SyncMethod::kAllReduce;
        return unit;
      };
      decide::Strategy strategy = decide::uniform_strategy(*problem, draw());
      const std::size_t rarely = 1 + rng.below(20);
      for (decide::UnitDecision& unit : strategy.units) {
        if (rng.below(rarely) == 0) unit = draw();
      }
      for (decide::UnitDecision& unit : strategy.units) unit.recompute = rng.below(4) == 0;
      if (rng.below(2) == 0) strategy.bucket_bytes = Bytes{1} << (16 + rng.below(10));
      strategy = decide::accumulate(*problem, strategy, 1 + static_cast<int>(rng.below(4)));
      strategy.pattern = decide::Pattern::kNone;  // in any order of theirs
      ASSERT_LE(bound, fastest_order(*problem, strategy)) << model << " " << round;
    }
  }
}

// Every op takes 1 µs on any slice. On one device that is all there is, but for the launches that
// updates may share; on three, a third of it.
TEST(LeastStep, CountsEveryOpOnce) {
  for (std::size_t devices : {1, 3}) {
    const auto problem = decide::model_problem("lenet5-tiny", devices, 12);
    std::size_t ops = 0, updates = 0;
    for (OpId op : problem->folded->ops) {
      const graph::Op& info = problem->graph->op(op);
      ops += info.phase != graph::Phase::kUpdate && !info.alias;
      updates += info.phase == graph::Phase::kUpdate;
    }
    for (const graph::UpdateChain& chain : problem->folded->chains) updates += chain.ops.size();
    const auto bound = static_cast<double>(least_step(*problem));
    const double share = 1000.0 / static_cast<double>(devices);
    EXPECT_GE(bound, 0.99 * share * static_cast<double>(ops));
    EXPECT_TRUE(devices > 1 || bound <= share * static_cast<double>(ops + updates));
  }
}

// An op on n samples takes 8 + n µs, updates nothing; three devices, 12 samples. Of the 17 ops of
// the graph 9 follow one another sample by sample: two products of the forward pass, relu, the
// difference, twice that, times the gradient of the sum, two products and the threshold of the
// backward pass. With a weight of 2/3 on the chain and 1/9 on each device, a cut of an op of the
// chain into slices of n counts (8 + n) (2/3 + 12 / (9 n)) µs, at least 12 µs, at n = 4; any other
// op (8 + 12) / 9 µs, at n = 12. Neither work alone, 20/3 µs an op, nor the chain alone, 9 µs an op
// of it, says as much.
TEST(LeastStep, SlicesTakeTheirFixedPartEach) {
  const auto problem = affine_problem(8e-6, 1e-6, 3, 12);
  const double by_hand = 9 * 12e3 + 8 * 20e3 / 9;
  EXPECT_GE(static_cast<double>(least_step(*problem)), by_hand - 17 * 2);  // roundings
  EXPECT_GT(by_hand, 17 * 20e3 / 3);
  EXPECT_LE(least_step(*problem),
            fastest_order(*problem, decide::uniform_strategy(
                                        *problem, decide::even_decision(
                                                      *problem, decide::SyncMethod::kAllReduce))));
}

// Every op takes 1 µs, 17 one after the other. What does not follow runs beside the rest: gradients
// of parameters on the other device, say.
TEST(LeastStep, WhatRunsBesideTheChainIsNoPartOfIt) {
  const auto problem = affine_problem(1e-6, 0, 2, 3);
  const Nanoseconds bound = least_step(*problem);
  Nanoseconds best = std::numeric_limits<Nanoseconds>::max();
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    decide::Strategy strategy =
        decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0)));
    for (decide::UnitDecision& unit : strategy.units) {
      if (rng.below(3) == 0) unit = decide::single_decision(DeviceId(1));
    }
    best = std::min(best, fastest_order(*problem, strategy));
  }
  EXPECT_LE(bound, best);
  EXPECT_LT(best, 16'000);
}

}  // namespace
}  // namespace heterog::sim

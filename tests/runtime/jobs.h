// Jobs for tests: real small graphs under given strategies, compiled and put in order.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compiler/compile.h"
#include "decide/problems.h"
#include "decide/random_sync.h"
#include "runtime/program/program.h"
#include "sim/improved_order.h"

namespace heterog::runtime {

struct TestJob {
  compiler::Plan plan;
  Job job;
};

inline TestJob make_test_job(std::shared_ptr<const cost::Problem> problem,
                             const decide::Strategy& strategy) {
  sim::Simulated made =
      sim::simulated_in_order(strategy, compiler::compile(*problem, strategy, {}));
  TestJob test{.plan = std::move(made.plan), .job = {}};
  test.job =
      make_job(problem, test.plan, made.result.dispatch, {.capture_gradients = true}, "test");
  return test;
}

// Every unit on all devices with these weights.
inline decide::Strategy weighted(const cost::Problem& problem, const std::vector<double>& weights,
                                 decide::SyncMethod sync) {
  decide::UnitDecision decision;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    decision.replicas.push_back({DeviceId(i), weights[i]});
  }
  decision.sync = sync;
  return decide::uniform_strategy(problem, decision);
}

// Each unit on one device or on some, in any order and with any weights, by any method.
inline decide::Strategy random_mix(const cost::Problem& problem, std::uint64_t seed) {
  Rng rng(seed);
  const std::size_t devices = problem.cluster->device_count();
  decide::Strategy strategy =
      decide::uniform_strategy(problem, decide::single_decision(DeviceId(rng.below(devices))));
  for (decide::UnitDecision& unit : strategy.units) {
    if (rng.below(4) == 0) continue;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < devices; ++i) order.push_back(i);
    for (std::size_t i = devices; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    unit.replicas.clear();
    const std::size_t count = 1 + rng.below(devices);
    for (std::size_t i = 0; i < count; ++i) {
      unit.replicas.push_back({DeviceId(order[i]), 1.0 + static_cast<double>(rng.below(7))});
    }
    unit.sync = decide::kSyncMethods[rng.below(3)];
  }
  if (rng.below(3) == 0) strategy.bucket_bytes = 1 << (8 + rng.below(12));
  if (rng.below(3) == 0) strategy.order = decide::OrderPolicy::kFifo;
  for (std::size_t i = 0; seed % 2 == 0 && i < devices; ++i) {
    strategy.row_weights.push_back(1.0 + static_cast<double>(rng.below(5)));
  }
  if (seed % 3 == 0) decide::deal_to_random_servers(problem, rng, strategy);
  if (seed % 3 == 1) decide::draw_random_groups(problem, rng, strategy);
  return strategy;
}

}  // namespace heterog::runtime

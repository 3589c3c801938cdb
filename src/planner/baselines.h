// The strategies that need no search: plain data parallelism, Horovod, one device.
#pragma once

#include <string>
#include <vector>

#include "compiler/strategy.h"
#include "cost/problem.h"
#include "planner/planner.h"

namespace heterog::planner {

// Every device a whole replica (EV) or replicas by speed (CP); parameter server or all-reduce.
compiler::Strategy even_ps(const cost::Problem& problem);
compiler::Strategy even_all_reduce(const cost::Problem& problem);
compiler::Strategy proportional_ps(const cost::Problem& problem);
compiler::Strategy proportional_all_reduce(const cost::Problem& problem);

// Even shares and all-reduce of gradients fused into buckets of up to 64 MiB, Horovod's default
// HOROVOD_FUSION_THRESHOLD.
inline constexpr Bytes kHorovodBucketBytes = Bytes{64} << 20;
compiler::Strategy horovod(const cost::Problem& problem);

compiler::Strategy single_device(const cost::Problem& problem, DeviceId device);

struct NamedStrategy {
  std::string name;
  compiler::Strategy strategy;
};
// Every strategy that a baseline of the registry stands for, under the baseline's name: data
// parallelism in rank order and in FIFO order (a baseline counts at its better one, so that no gain
// over it comes from a bad order), "single" once per device.
std::vector<NamedStrategy> baseline_strategies(const cost::Problem& problem);

// For the registry.
std::unique_ptr<const Planner> make_even_ps();
std::unique_ptr<const Planner> make_even_all_reduce();
std::unique_ptr<const Planner> make_proportional_ps();
std::unique_ptr<const Planner> make_proportional_all_reduce();
std::unique_ptr<const Planner> make_horovod();
std::unique_ptr<const Planner> make_single();
// One device, chosen.
std::unique_ptr<const Planner> make_single_on(DeviceId device);

}  // namespace heterog::planner

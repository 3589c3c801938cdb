// Random strategies in micro-batches, in which a device has several instances of an op.
#pragma once

#include <algorithm>

#include "base/rng.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Two micro-batches up to so many (or one, where that is 1), in any pattern but strict turns, which
// random units cannot take; a third of them in pipelines side by side. Neighbouring units often
// decide alike, as the stages of a pipeline do; a third take micro-batches in turn.
inline Strategy random_instances(const cost::Problem& problem, std::uint64_t seed,
                                 std::int64_t most_micro_batches = 4) {
  Rng rng(seed);
  const std::size_t devices = problem.cluster->device_count();
  Strategy strategy;
  UnitDecision decision;
  for (std::size_t unit = 0; unit < problem.grouping.count(); ++unit) {
    if (unit == 0 || rng.below(3) == 0) {
      decision = {};
      decision.sync = kSyncMethods[rng.below(3)];
      decision.in_turn = rng.below(3) == 0;
      // From one stage's devices to everything everywhere.
      const std::size_t of = 1 + rng.below(devices), from = rng.below(devices);
      for (std::size_t entries = 1 + rng.below(6); entries > 0; --entries) {
        const DeviceId device((from + rng.below(of)) % devices);
        decision.replicas.push_back({device, 1.0 + static_cast<double>(rng.below(3))});
      }
    }
    strategy.units.push_back(decision);
  }
  if (rng.below(2)) strategy.bucket_bytes = static_cast<Bytes>(rng.below(1 << 16));
  if (rng.below(3) == 0) strategy.order = OrderPolicy::kFifo;
  if (most_micro_batches == 1) return strategy;
  strategy.micro_batches =
      2 + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most_micro_batches - 1)));
  strategy.pattern = kPatterns[rng.below(kPatterns.size())];
  if (strategy.pattern != Pattern::kNone) strategy.order = OrderPolicy::kPriority;
  if (rng.below(3) == 0) {
    for (std::size_t device = 0; device < devices; ++device) {
      strategy.pipeline_of.push_back(static_cast<std::uint32_t>(rng.below(2)));
    }
  }
  return strategy;
}

// The forward pass in up to six pieces that decide each for itself, whatever parameters they share;
// backward ops go with the ops that they differentiate. A piece is on one device or several, in up
// to so many micro-batches.
inline Strategy random_pieces(const cost::Problem& problem, std::uint64_t seed,
                              std::int64_t most_micro_batches = 3) {
  Rng rng(seed);
  const graph::ModelGraph& graph = *problem.graph;
  const std::size_t devices = problem.cluster->device_count();
  Strategy strategy;
  for (std::size_t pieces = 2 + rng.below(5); pieces > 0; --pieces) {
    UnitDecision decision;
    decision.sync = kSyncMethods[rng.below(3)];
    for (std::size_t entries = rng.below(2) ? 1 : 1 + rng.below(devices); entries > 0; --entries) {
      decision.replicas.push_back({DeviceId(rng.below(devices)), 1.0 + rng.below(3)});
    }
    strategy.units.push_back(decision);
  }
  std::size_t forward_ops = 0;  // the first ones
  for (OpId op : graph.op_ids()) forward_ops += graph.op(op).phase == graph::Phase::kForward;
  for (OpId op : graph.op_ids()) {
    const OpId forward = op.value() < forward_ops ? op : graph.op(op).forward;
    const std::size_t place = forward.valid() ? forward.value() : 0;
    strategy.unit_of_op.push_back(UnitId(place * strategy.units.size() / forward_ops));
  }
  strategy.micro_batches =
      1 + static_cast<std::int64_t>(
              rng.below(static_cast<std::uint64_t>(std::min(most_micro_batches, problem.batch))));
  if (rng.below(2)) strategy.bucket_bytes = static_cast<Bytes>(rng.below(1 << 16));
  return strategy;
}

}  // namespace heterog::decide

// Random strategies in whose lists devices stand several times.
#pragma once

#include "base/rng.h"
#include "compiler/strategy.h"

namespace heterog::compiler {

// Neighbouring units often decide alike, as the stages of a pipeline do. A third of the decisions
// merge a device's entries, or have none twice.
inline Strategy random_instances(const cost::Problem& problem, std::uint64_t seed) {
  Rng rng(seed);
  const std::size_t devices = problem.cluster->device_count();
  Strategy strategy;
  UnitDecision decision;
  for (std::size_t unit = 0; unit < problem.grouping.count(); ++unit) {
    if (unit == 0 || rng.below(3) == 0) {
      decision = {};
      decision.sync = rng.below(2) ? SyncMethod::kAllReduce : SyncMethod::kParameterServer;
      decision.instances = rng.below(3) ? Instances::kPerEntry : Instances::kPerDevice;
      // From one stage's micro-batches to everything everywhere.
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
  return strategy;
}

}  // namespace heterog::compiler

// Lines up the replayed peak of each device with the greatest that its rank has counted.
#include "measure/memory_drift.h"

#include "sim/memory.h"

namespace heterog::measure {

std::vector<MemoryDrift> memory_drift(const cost::Problem& problem, const compiler::Plan& plan,
                                      const sim::SimResult& result,
                                      const std::vector<runtime::RankMemory>& measured) {
  using sim::MemoryPurpose;
  const auto peaks = sim::memory_peaks(problem, plan, result);
  std::vector<MemoryDrift> drift;
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::MemoryPeak& peak = peaks[device];
    drift.push_back({.device = problem.cluster->device(device).name,
                     .predicted = {.most = peak.total() - peak.of(MemoryPurpose::kReserve),
                                   .parameters = peak.of(MemoryPurpose::kParameters),
                                   .optimizer_state = peak.of(MemoryPurpose::kOptimizerState),
                                   .buffers = peak.of(MemoryPurpose::kBuffers)},
                     .measured = measured.at(device.value())});
  }
  return drift;
}

}  // namespace heterog::measure

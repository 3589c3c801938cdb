// The memory of each device over a simulated step, and what it is taken for at its peak.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "sim/simulator.h"

namespace heterog::sim {

struct MemoryPoint {
  Nanoseconds time = 0;
  DeviceId device;
  Bytes bytes = 0;  // from this time on, static memory included
};

// Replays allocations and releases of a result with its timeline. One point per device and time at
// which its memory changes (what it is at the end of that moment), plus one per device at time 0.
std::vector<MemoryPoint> memory_curve(const compiler::Plan& plan, const SimResult& result);

enum class MemoryPurpose : std::uint8_t {
  kParameters,
  kOptimizerState,
  kBuffers,      // of the model, and its inputs
  kReserve,      // of the device type
  kGradients,    // of parameters: own, received, summed
  kActivations,  // made in forward and kept for backward
  kTemporaries,  // all other values: read soon after they were made
  kBuckets,      // gradients side by side in the buffer of a collective
  kWorkspace,    // of the operators that run
};
inline constexpr int kMemoryPurposeCount = 9;
std::string_view memory_purpose_name(MemoryPurpose purpose);  // "parameters"

// A buffer, or the workspace of a task, at the peak of its device.
struct HeldMemory {
  Bytes bytes = 0;
  MemoryPurpose purpose = MemoryPurpose::kTemporaries;
  TensorId tensor;  // invalid: workspace
  TaskId maker;     // which allocates it
  TaskId until;     // the last to need it: then it is given back
};

// The first moment at which a device holds the most.
struct MemoryPeak {
  Nanoseconds time = 0;
  TaskId task;  // whose start makes the peak; invalid: what stays resident is all there ever is
  std::array<Bytes, kMemoryPurposeCount> bytes{};  // by purpose
  std::vector<HeldMemory> held;                    // what tasks have allocated, the largest first
  Bytes of(MemoryPurpose purpose) const { return bytes[static_cast<std::size_t>(purpose)]; }
  Bytes total() const;  // equals SimResult::peak_bytes
};

// Replays the timeline in the order of decision 8, moment by moment: what ends, ends first; then
// tasks start; tasks of no time end together before those that waited for them start.
IdVector<DeviceId, MemoryPeak> memory_peaks(const cost::Problem& problem,
                                            const compiler::Plan& plan, const SimResult& result);

}  // namespace heterog::sim

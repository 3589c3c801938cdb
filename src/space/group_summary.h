// Summary of the groups for planners and the network, before anything is simulated: time,
// parameters, and what each keeps for the backward pass.
#pragma once

#include <cstdint>

#include "cost/problem.h"

namespace heterog::space {

// All of the whole batch. Seconds are means over the cluster's devices, unless they say otherwise.
struct GroupSummary {
  std::int64_t ops = 0;        // aliases left out
  double seconds = 0;          // of computation
  double forward_seconds = 0;  // of which forward
  double whole_seconds = 0;    // of which ops that cannot run on a slice
  IdVector<DeviceTypeId, double> seconds_on;
  Bytes parameter_bytes = 0;
  Bytes optimizer_bytes = 0;
  Bytes activation_bytes = 0;  // made in forward, read later
  // Groups of the same operators and sizes share it: the repeated layers of a network.
  std::uint64_t likeness = 0;

  // Parameters, their gradients and optimizer state.
  Bytes state_bytes() const { return 2 * parameter_bytes + optimizer_bytes; }
};
using GroupSummaries = IdVector<GroupId, GroupSummary>;

GroupSummaries summarize_groups(const cost::Problem& problem);

// The group that owns a parameter: of the op that updates it, else of its first reader.
IdVector<TensorId, GroupId> parameter_groups(const cost::Problem& problem);

}  // namespace heterog::space

// What search needs to know of each group: time, parameters, what it keeps for backward, likeness.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/problem.h"

namespace heterog::planner {

struct GroupStats {
  double seconds = 0;  // whole batch, mean over the cluster's devices
  Bytes parameter_bytes = 0;
  Bytes optimizer_bytes = 0;
  Bytes saved_bytes = 0;  // whole batch: made in forward, read in backward
  // Groups of the same operators and sizes share it: the repeated layers of a network.
  std::uint64_t likeness = 0;
  std::vector<double> seconds_on;  // whole batch, by device type
};

IdVector<GroupId, GroupStats> group_stats(const cost::Problem& problem);

// The group that owns a parameter: of the op that updates it, else of its first reader.
IdVector<TensorId, GroupId> parameter_groups(const cost::Problem& problem);

}  // namespace heterog::planner

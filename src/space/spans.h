// The model laid out over the devices: contiguous blocks of groups in proportion to what each
// device has.
#pragma once

#include <array>

#include "space/cluster_summary.h"
#include "space/group_summary.h"

namespace heterog::space {

// [begin, end) as shares of the whole line.
using Span = std::array<double, 2>;

// Where a group begins and ends when groups are laid end to end, by memory and by time; the same
// for devices, laid end to end by capacity and by speed.
struct Spans {
  IdVector<GroupId, Span> group_memory, group_time;
  IdVector<DeviceId, Span> device_memory, device_speed;
};
Spans lay_end_to_end(const GroupSummaries& groups, const ClusterSummary& cluster);

}  // namespace heterog::space

// Which peers a device exchanges messages with side by side.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "cluster/cluster.h"

namespace heterog::runtime {

enum class Way : std::uint8_t { kTo, kFrom };

// By place: messages of one lane go one after another, those of two lanes side by side. Peers are
// in one lane where the messages to both go over one wire, as the simulator has it (decision 7):
// side by side, the first would arrive later and the last no sooner. A connection that a cloud caps
// takes a part of a wire, and is a lane of its own. Lanes are numbered from 0 on, in the order of
// their first peers; the device itself is in none, and says 0.
IdVector<DeviceId, std::uint32_t> lanes_of_peers(const cluster::Cluster& cluster, DeviceId device,
                                                 Way way);

}  // namespace heterog::runtime

// Parameter servers: which device or host serves, and who talks to it.
#pragma once

#include <span>
#include <vector>

#include "cost/problem.h"
#include "decide/layout.h"

namespace heterog::decide {

// Who talks to a parameter server: each other device of its own machine for itself, and of every
// other machine one for all of its devices there. That one adds up what the others push, and hands
// them what it pulls.
struct Speaker {
  DeviceId device;
  std::vector<DeviceId> others;
};
// `devices`: distinct; the server may be among them. In ascending order of the devices. The turn of
// speaking goes round with the number of the server, so that it falls to all devices alike.
std::vector<Speaker> speakers(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                              DeviceId server);

// Parameter servers, in fixed parameter order: of cluster::possible_servers, the one that ends this
// aggregation first, given the bytes that the earlier parameters already put on each link (decision
// 5; ties: lowest id). Sets `server` of every home with several replicas whose method is
// kParameterServer and whose server is not given. A host that serves is then one of the replicas.
void choose_servers(const cost::Problem& problem, std::vector<ParameterHome>& homes,
                    std::span<const Bytes> parameter_bytes);

}  // namespace heterog::decide

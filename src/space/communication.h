// Communication of each group, by formula: data to and from other groups, and gradients.
#pragma once

#include <vector>

#include "space/group_summary.h"
#include "space/op_graph.h"

namespace heterog::space {

struct GroupCommunication {
  Bytes bytes_in = 0;   // from other groups, on the whole batch
  Bytes bytes_out = 0;  // to other groups
  // The sums of its gradients over every device, parameter after parameter.
  double all_reduce_seconds = 0;
  double parameter_server_seconds = 0;  // pushes to and pulls from servers behind every port
};

IdVector<GroupId, GroupCommunication> summarize_communication(const cost::Problem& problem,
                                                              const OpGraph& ops);

// The cost of parameter servers of some replicas: a line in the bytes of a parameter for each port
// that servers stand behind (a machine's, or a device's where all are in one machine).
struct ServerPort {
  double fixed = 0;     // s a parameter: what the software of servers takes for each message
  double per_byte = 0;  // s
};

// A port's line is the time to push a parameter from every other device of its machine and from one
// of every other machine to its best server and pull it back, one after another. `devices` ascend,
// so those of a machine stand together; two or more.
std::vector<ServerPort> server_ports(const cluster::Cluster& cluster,
                                     const std::vector<DeviceId>& devices);

// Seconds that a parameter of so many bytes adds. Servers are chosen so that the bytes of all
// parameters end at once behind every port (decision 5), the number of messages is not looked at:
// those of most small parameters meet at one port, which sends and receives at once. Each parameter
// has one server: the larger a `part` of all bytes it is, the less of its way there and back passes
// beside that of others.
double server_seconds(const std::vector<ServerPort>& ports, Bytes bytes, double part);

// The sums of gradients of every group where only these devices have replicas of it.
struct SyncSeconds {
  double all_reduce = 0;
  double parameter_server = 0;
};
IdVector<GroupId, SyncSeconds> summarize_sync(const cost::Problem& problem,
                                              const std::vector<DeviceId>& devices);

}  // namespace heterog::space

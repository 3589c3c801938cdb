// What each group would send: data to and from other groups, and its gradients, by formula.
#pragma once

#include <vector>

#include "space/group_summary.h"
#include "space/op_graph.h"

namespace heterog::space {

struct GroupCommunication {
  Bytes bytes_in = 0;   // from other groups, on the whole batch
  Bytes bytes_out = 0;  // to other groups
  // Of its gradients over every device, parameter after parameter.
  double all_reduce_seconds = 0;
  double parameter_server_seconds = 0;  // push to and pull from the best single server
};

IdVector<GroupId, GroupCommunication> summarize_communication(const cost::Problem& problem,
                                                              const OpGraph& ops);

// Time to push a byte from every other device of its machine and from one of every other machine to
// one server and pull it back, one after another through the server's links; the best server
// (decision 5 spreads servers, so this is an upper end). `devices` ascend, so those of a machine
// stand together; two or more.
double server_seconds_per_byte(const cluster::Cluster& cluster,
                               const std::vector<DeviceId>& devices);

// The sums of gradients of every group where only these devices have replicas of it.
struct SyncSeconds {
  double all_reduce = 0;
  double parameter_server = 0;
};
IdVector<GroupId, SyncSeconds> summarize_sync(const cost::Problem& problem,
                                              const std::vector<DeviceId>& devices);

}  // namespace heterog::space

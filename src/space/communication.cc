// Sums over the edges of the op graph and over the parameters.
#include "space/communication.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "cost/collective.h"
#include "space/cluster_summary.h"

namespace heterog::space {

namespace {

// Seconds that a push or pull of one byte takes.
double server_seconds_per_byte(const cluster::Cluster& cluster, DeviceId from, DeviceId to) {
  const double own = cluster.route(from, to).server_bytes_per_second;
  return std::max(seconds_per_byte(cluster, from, to), own > 0 ? 1 / own : 0);
}

// Time to push `bytes` from every other device of its machine and from one of every other machine
// to one server and pull them back, one after another through the server's links; the best server
// (decision 5 spreads servers, so this is an upper end).
double parameter_server_seconds(const cluster::Cluster& cluster, Bytes bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (DeviceId server : cluster.device_ids()) {
    double sum = 0;
    for (DeviceId d : cluster.device_ids()) {
      if (d == server) continue;
      const bool speaks = cluster.same_machine(d, server) ||
                          d == cluster.machine(cluster.device(d).machine).devices.front();
      if (!speaks) continue;
      sum += (server_seconds_per_byte(cluster, d, server) +
              server_seconds_per_byte(cluster, server, d)) *
             static_cast<double>(bytes);
    }
    best = std::min(best, sum);
  }
  return best;
}

}  // namespace

IdVector<GroupId, GroupCommunication> summarize_communication(const cost::Problem& problem,
                                                              const OpGraph& ops) {
  const cluster::Cluster& cluster = *problem.cluster;
  IdVector<GroupId, GroupCommunication> groups(problem.grouping.count());
  for (const OpEdge& edge : ops.edges) {
    const GroupId source = problem.grouping.group_of[ops.nodes[edge.source]];
    const GroupId target = problem.grouping.group_of[ops.nodes[edge.target]];
    if (source == target) continue;
    groups[source].bytes_out += edge.bytes;
    groups[target].bytes_in += edge.bytes;
  }
  if (cluster.device_count() < 2) return groups;

  std::vector<DeviceId> devices;
  for (DeviceId d : cluster.device_ids()) devices.push_back(d);
  const IdVector<TensorId, GroupId> owner = parameter_groups(problem);
  std::map<Bytes, std::array<double, 2>> sync_of_size;  // parameters of one size cost the same
  for (TensorId parameter : problem.graph->parameters()) {
    const Bytes bytes = problem.graph->bytes(parameter, problem.batch);
    if (!owner[parameter].valid() || bytes == 0) continue;
    auto [it, is_new] = sync_of_size.try_emplace(bytes);
    if (is_new) {
      it->second = {to_seconds(cost::all_reduce_cost(cluster, devices, bytes).duration),
                    parameter_server_seconds(cluster, bytes)};
    }
    groups[owner[parameter]].all_reduce_seconds += it->second[0];
    groups[owner[parameter]].parameter_server_seconds += it->second[1];
  }
  return groups;
}

}  // namespace heterog::space

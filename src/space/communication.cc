// Sums over the edges of the op graph and over the parameters.
#include "space/communication.h"

#include <algorithm>
#include <limits>
#include <map>

#include "cost/collective.h"
#include "space/cluster_summary.h"

namespace heterog::space {

namespace {

// Seconds that a push or pull of one byte takes.
double push_seconds_per_byte(const cluster::Cluster& cluster, DeviceId from, DeviceId to) {
  const double own = cluster.route(from, to).server_bytes_per_second;
  return std::max(seconds_per_byte(cluster, from, to), own > 0 ? 1 / own : 0);
}

}  // namespace

double server_seconds_per_byte(const cluster::Cluster& cluster,
                               const std::vector<DeviceId>& devices) {
  double best = std::numeric_limits<double>::infinity();
  for (DeviceId server : cluster::possible_servers(cluster, devices)) {
    double sum = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const DeviceId d = devices[i];
      const bool first = i == 0 || !cluster.same_machine(devices[i - 1], d);
      if (d == server || (!first && !cluster.same_machine(d, server))) continue;
      sum += push_seconds_per_byte(cluster, d, server) + push_seconds_per_byte(cluster, server, d);
    }
    best = std::min(best, sum);
  }
  return best;
}

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
  std::vector<DeviceId> devices;
  for (DeviceId d : cluster.device_ids()) devices.push_back(d);
  const IdVector<GroupId, SyncSeconds> sync = summarize_sync(problem, devices);
  for (GroupId group : id_range<GroupId>(groups.size())) {
    groups[group].all_reduce_seconds = sync[group].all_reduce;
    groups[group].parameter_server_seconds = sync[group].parameter_server;
  }
  return groups;
}

IdVector<GroupId, SyncSeconds> summarize_sync(const cost::Problem& problem,
                                              const std::vector<DeviceId>& devices) {
  const cluster::Cluster& cluster = *problem.cluster;
  IdVector<GroupId, SyncSeconds> groups(problem.grouping.count());
  if (devices.size() < 2) return groups;
  const double server = server_seconds_per_byte(cluster, devices);
  const IdVector<TensorId, GroupId> owner = parameter_groups(problem);
  std::map<Bytes, double> reduced;  // parameters of one size cost the same
  for (TensorId parameter : problem.graph->parameters()) {
    const Bytes bytes = problem.graph->bytes(parameter, problem.batch);
    if (!owner[parameter].valid() || bytes == 0) continue;
    auto [it, is_new] = reduced.try_emplace(bytes);
    if (is_new) it->second = to_seconds(cost::all_reduce_cost(cluster, devices, bytes).duration);
    groups[owner[parameter]].all_reduce += it->second;
    groups[owner[parameter]].parameter_server += server * static_cast<double>(bytes);
  }
  return groups;
}

}  // namespace heterog::space

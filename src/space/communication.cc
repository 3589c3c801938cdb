// Sums over the edges of the op graph and over the parameters.
#include "space/communication.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "cost/collective.h"
#include "space/cluster_summary.h"

namespace heterog::space {

namespace {

// Adds a push and the pull that follows it.
void add_messages(const cluster::Cluster& cluster, DeviceId device, DeviceId server,
                  ServerPort& port) {
  for (const auto& [from, to] : {std::pair(device, server), std::pair(server, device)}) {
    const cluster::Route& route = cluster.route(from, to);
    const double own = route.server_bytes_per_second;
    port.per_byte += std::max(seconds_per_byte(cluster, from, to), own > 0 ? 1 / own : 0);
    if (own > 0) port.fixed += to_seconds(route.server_latency);
  }
}

}  // namespace

std::vector<ServerPort> server_ports(const cluster::Cluster& cluster,
                                     const std::vector<DeviceId>& devices) {
  const bool one_machine = cluster.same_machine(devices.front(), devices.back());
  std::vector<ServerPort> ports;
  DeviceId last;  // the server before
  for (DeviceId server : cluster::possible_servers(cluster, devices)) {
    ServerPort port;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const DeviceId d = devices[i];
      const bool first = i == 0 || !cluster.same_machine(devices[i - 1], d);
      if (d == server || (!first && !cluster.same_machine(d, server))) continue;
      add_messages(cluster, d, server, port);
    }
    const bool same_port = last.valid() && !one_machine && cluster.same_machine(last, server);
    last = server;
    if (!same_port) {
      ports.push_back(port);
    } else if (port.per_byte < ports.back().per_byte) {
      ports.back() = port;
    }
  }
  return ports;
}

double server_seconds(const std::vector<ServerPort>& ports, Bytes bytes, double part) {
  const auto size = static_cast<double>(bytes);
  double bytes_a_second = 0;
  double fixed = std::numeric_limits<double>::infinity(), alone = fixed;
  for (const ServerPort& port : ports) {
    bytes_a_second += 1 / port.per_byte;
    fixed = std::min(fixed, port.fixed / 2);
    alone = std::min(alone, port.fixed + port.per_byte * size);
  }
  return fixed + size / bytes_a_second + part * alone;
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
  const std::vector<ServerPort> ports = server_ports(cluster, devices);
  const IdVector<TensorId, GroupId> owner = parameter_groups(problem);
  Bytes all = 0;
  for (TensorId parameter : problem.graph->parameters()) {
    if (owner[parameter].valid()) all += problem.graph->bytes(parameter, problem.batch);
  }
  std::map<Bytes, SyncSeconds> costs;  // parameters of one size cost the same
  for (TensorId parameter : problem.graph->parameters()) {
    const Bytes bytes = problem.graph->bytes(parameter, problem.batch);
    if (!owner[parameter].valid() || bytes == 0) continue;
    auto [it, is_new] = costs.try_emplace(bytes);
    if (is_new) {
      it->second.all_reduce = to_seconds(cost::all_reduce_cost(cluster, devices, bytes).duration);
      it->second.parameter_server =
          server_seconds(ports, bytes, static_cast<double>(bytes) / static_cast<double>(all));
    }
    groups[owner[parameter]].all_reduce += it->second.all_reduce;
    groups[owner[parameter]].parameter_server += it->second.parameter_server;
  }
  return groups;
}

}  // namespace heterog::space

// Adds up bytes by server and by collective.
#include "search/autosync/sync_cost.h"

#include <algorithm>
#include <set>

namespace heterog::search {
namespace {

using decide::SyncMethod;

double rate_of(const cluster::Cluster& cluster, DeviceId from, DeviceId to) {
  const cluster::Route& route = cluster.route(from, to);
  double rate = 0;
  for (LinkId link : route.links) {
    const double one = cluster.link(link).bytes_per_second;
    if (rate == 0 || one < rate) rate = one;
  }
  const double cap = route.cap_bytes_per_second * static_cast<double>(route.flows);
  return cap > 0 && (rate == 0 || cap < rate) ? cap : rate;
}

}  // namespace

SyncTimes::SyncTimes(const SyncSpace& space) {
  const cost::Problem& problem = *space.problem;
  const cluster::Cluster& cluster = *problem.cluster;
  devices = cluster.device_count();
  const auto share = std::max<std::int64_t>(1, problem.batch / static_cast<std::int64_t>(devices));
  std::set<DeviceTypeId> types;
  for (DeviceId device : cluster.device_ids()) types.insert(cluster.device(device).type);
  for (DeviceTypeId type : types) {
    double seconds = 0;
    for (OpId op : problem.folded->ops) {
      seconds += to_seconds(problem.costs.duration(op, type, share));
    }
    computation = std::max(computation, seconds);
    kernel = std::max(kernel, cluster.type(type).launch_seconds);
  }
  DeviceId last;
  for (DeviceId device : cluster.device_ids()) {
    if (last.valid()) {
      const double rate = rate_of(cluster, last, device);
      if (ring_rate == 0 || rate < ring_rate) ring_rate = rate;
      overhead = std::max(overhead, to_seconds(cluster.route(last, device).latency));
    }
    last = device;
  }
  seconds_per_byte.assign(cluster.place_count(), 0.0);
  machines.assign(cluster.place_count(), 0.0);
  for (DeviceId server : space.servers) {
    DeviceId before;  // of the machine before
    for (DeviceId device : cluster.device_ids()) {
      const bool same = before.valid() && cluster.same_machine(before, device);
      before = device;
      if (same || cluster.same_machine(server, device)) continue;
      seconds_per_byte[server] += 1 / rate_of(cluster, device, server);
      machines[server] += 1;
    }
  }
}

SyncFeatures sync_features(const SyncSpace& space, const SyncTimes& times, const SyncPoint& point) {
  const std::size_t places = space.problem->cluster->place_count();
  IdVector<DeviceId, double> transfer(places, 0.0), overhead(places, 0.0);
  const auto n = static_cast<double>(times.devices);
  const double ring = 2 * (n - 1) / n / times.ring_rate;
  double late_served = 0, late_reduced = 0, largest = 0, parts = 0, served = 0;
  double reduced = 0, sharded = 0;
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    const SyncChoice& choice = point.choices[v];
    const auto bytes = static_cast<double>(space.variables[v].bytes);
    const double place = static_cast<double>(v + 1) / static_cast<double>(point.choices.size());
    if (choice.method != SyncMethod::kParameterServer) {
      reduced += bytes;
      if (choice.method == SyncMethod::kSharded) sharded += bytes;
      late_reduced += bytes * place;
      continue;
    }
    ++served;
    parts += choice.parts;
    for (const decide::Replica& one : choice.servers) {
      const double share = bytes * one.weight / choice.parts;
      const double seconds = 2 * share * times.seconds_per_byte[one.device];
      transfer[one.device] += seconds;
      overhead[one.device] += 2 * one.weight * times.machines[one.device] * times.overhead;
      largest = std::max(largest, seconds / one.weight);
      late_served += seconds * place;
    }
  }
  const auto collectives = static_cast<double>(sync_groups(space, point).bytes.size());
  double most = 0, sum = 0, most_overhead = 0;
  for (DeviceId server : space.servers) {
    most = std::max(most, transfer[server]);
    sum += transfer[server];
    most_overhead = std::max(most_overhead, overhead[server]);
  }
  SyncFeatures features = {
      times.computation,
      most,
      sum / static_cast<double>(std::max<std::size_t>(1, space.servers.size())),
      most_overhead,
      parts * times.kernel,
      reduced * ring,
      collectives * n * times.overhead,
      collectives * times.kernel,
      late_served / static_cast<double>(std::max<std::size_t>(1, space.servers.size())),
      late_reduced * ring,
      largest,
      sharded * ring,
      0,
      point.order == decide::OrderPolicy::kRankQueued ? 1.0 : 0.0,
      point.order == decide::OrderPolicy::kFifo ? 1.0 : 0.0,
      served > 0 ? parts / served : 0,
  };
  const double sync =
      features[1] + features[3] + features[4] + features[5] + features[6] + features[7];
  features[12] = std::max(0.0, sync - times.computation);
  return features;
}

std::vector<VariableFeatures> variable_features(const SyncSpace& space, const SyncTimes& times,
                                                const SyncPoint& point) {
  const auto n = static_cast<double>(times.devices);
  const SyncGroups groups = sync_groups(space, point);
  std::vector<VariableFeatures> all;
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    const SyncChoice& choice = point.choices[v];
    const auto bytes = static_cast<double>(space.variables[v].bytes);
    VariableFeatures& one = all.emplace_back();
    one[3] = bytes;
    one[4] = static_cast<double>(v + 1) / static_cast<double>(point.choices.size());
    if (choice.method == SyncMethod::kParameterServer) {
      for (const decide::Replica& server : choice.servers) {
        one[0] += 2 * bytes * server.weight / choice.parts * times.seconds_per_byte[server.device];
        one[1] += 2 * server.weight * times.machines[server.device] * times.overhead;
      }
      one[2] = choice.parts * times.kernel;
      one[5] = 1;
      one[7] = choice.parts;
    } else {
      const std::uint32_t group = groups.of[v] - 1;
      const double share = 1.0 / groups.variables[group];
      one[0] = bytes * 2 * (n - 1) / n / times.ring_rate;
      one[1] = share * n * times.overhead;
      one[2] = share * times.kernel;
      one[6] = choice.method == SyncMethod::kSharded ? 1 : 0;
      one[8] = static_cast<double>(groups.bytes[group]);
    }
  }
  return all;
}

double formula_seconds(const SyncFeatures& features) { return features[0] + features[12]; }

}  // namespace heterog::search

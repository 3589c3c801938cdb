// Who talks to a parameter server, and which of those that may serve a parameter does.
#include "decide/servers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cost/collective.h"

namespace heterog::decide {
namespace {

// Goes through those who talk to a server: visit(speaker, the devices of its machine that it speaks
// for, itself among them). `sorted`: ascending, so machine by machine.
template <class Visit>
void each_speaker(const cluster::Cluster& cluster, std::span<const DeviceId> sorted,
                  DeviceId server, Visit visit) {
  for (std::size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && cluster.same_machine(sorted[begin], sorted[end])) ++end;
    if (cluster.same_machine(sorted[begin], server)) {
      for (std::size_t i = begin; i < end; ++i) {
        if (sorted[i] != server) visit(sorted[i], sorted.subspan(i, 1));
      }
      continue;
    }
    visit(sorted[begin + server.value() % (end - begin)], sorted.subspan(begin, end - begin));
  }
}

// What serving one byte of a parameter puts on the links: seconds of each link that a push from or
// a pull to another replica crosses. The greatest first: these decide.
using LinkSeconds = std::vector<std::pair<LinkId, double>>;

// `replicas`: ascending.
LinkSeconds serving_load(const cluster::Cluster& cluster, const std::vector<DeviceId>& replicas,
                         DeviceId server) {
  constexpr Bytes kMany = Bytes{1} << 30;  // so that whole nanoseconds do not show
  IdVector<LinkId, double> seconds(cluster.link_count(), 0.0);
  std::vector<LinkId> links;
  const auto add = [&](DeviceId from, DeviceId to) {
    const cluster::Route& route = cluster.route(from, to);
    for (LinkId link : route.links) {
      const Nanoseconds held =
          cost::link_hold(cluster, route, link, kMany, cost::TransferUse::kServer);
      if (seconds[link] == 0) links.push_back(link);
      seconds[link] += to_seconds(held) / static_cast<double>(kMany);
    }
  };
  each_speaker(cluster, replicas, server, [&](DeviceId speaker, std::span<const DeviceId> all) {
    add(speaker, server);
    add(server, speaker);
    for (DeviceId other : all) {
      if (other == speaker) continue;
      add(other, speaker);
      add(speaker, other);
    }
  });
  std::ranges::sort(links);
  links.erase(std::unique(links.begin(), links.end()), links.end());
  LinkSeconds load;
  for (LinkId link : links) load.emplace_back(link, seconds[link]);
  std::ranges::sort(load, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return load;
}

// What the servers of a parameter's rows put on the links.
void add_load_of_parts(const cluster::Cluster& cluster, const ParameterHome& home, double bytes,
                       IdVector<LinkId, double>& load) {
  const std::vector<DeviceId> devices(home.replicas.begin(),
                                      home.replicas.end() - std::ptrdiff_t(home.hosts));
  for (std::size_t i = 0; i < home.replicas.size(); ++i) {
    if (home.rows_of(i) == 0) continue;
    const double part =
        bytes * static_cast<double>(home.rows_of(i)) / static_cast<double>(home.row_count());
    for (const auto& [link, seconds] : serving_load(cluster, devices, home.replicas[i])) {
      load[link] += part * seconds;
    }
  }
}

// Of those whose serving loads links so, the one after which the busiest of its links is free
// first.
std::size_t first_to_end(const std::vector<LinkSeconds>& of_server,
                         const IdVector<LinkId, double>& load, double bytes) {
  std::size_t best = 0;
  double best_end = 0;
  for (std::size_t s = 0; s < of_server.size(); ++s) {
    double end = 0;
    for (const auto& [link, seconds] : of_server[s]) {
      end = std::max(end, load[link] + bytes * seconds);
      if (s > 0 && end >= best_end) break;  // of a thousand servers, most
    }
    if (s == 0 || end < best_end) {
      best = s;
      best_end = end;
    }
  }
  return best;
}

}  // namespace

std::vector<Speaker> speakers(const cluster::Cluster& cluster, std::span<const DeviceId> devices,
                              DeviceId server) {
  std::vector<DeviceId> sorted(devices.begin(), devices.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Speaker> list;
  each_speaker(cluster, sorted, server, [&](DeviceId speaker, std::span<const DeviceId> all) {
    Speaker& one = list.emplace_back(speaker);
    for (DeviceId other : all) {
      if (other != speaker) one.others.push_back(other);
    }
  });
  return list;
}

void choose_servers(const cost::Problem& problem, std::vector<ParameterHome>& homes,
                    std::span<const Bytes> parameter_bytes) {
  const cluster::Cluster& cluster = *problem.cluster;
  IdVector<LinkId, double> load(cluster.link_count(), 0.0);  // seconds, of earlier parameters
  // Of the sets of replicas seen: who may serve, and what that loads.
  struct Choice {
    std::vector<DeviceId> servers;
    std::vector<LinkSeconds> load;
  };
  std::map<std::vector<DeviceId>, Choice> known;
  for (std::size_t i = 0; i < homes.size(); ++i) {
    ParameterHome& home = homes[i];
    if (home.replicas.size() == 1 || home.method != SyncMethod::kParameterServer) continue;
    const double bytes = static_cast<double>(parameter_bytes[i]);
    if (home.by_rows()) {
      add_load_of_parts(cluster, home, bytes, load);
      continue;
    }
    auto [at, is_new] = known.try_emplace(home.replicas);
    Choice& choice = at->second;
    if (is_new) {
      choice.servers = cluster::possible_servers(cluster, home.replicas);
      for (DeviceId server : choice.servers) {
        choice.load.push_back(serving_load(cluster, home.replicas, server));
      }
    }
    if (!home.server.valid()) home.server = choice.servers[first_to_end(choice.load, load, bytes)];
    const auto at_server = std::ranges::find(choice.servers, home.server) - choice.servers.begin();
    // A strategy may name a replica where hosts serve.
    const bool known_load = at_server < std::ssize(choice.servers);
    ENSURE(known_load || std::ranges::find(home.replicas, home.server) != home.replicas.end());
    const LinkSeconds own =
        known_load ? LinkSeconds() : serving_load(cluster, home.replicas, home.server);
    for (const auto& [link, seconds] : known_load ? choice.load[at_server] : own) {
      load[link] += bytes * seconds;
    }
    home.hosts = cluster.is_host(home.server) ? 1 : 0;
    if (home.hosts > 0) home.replicas.push_back(home.server);
  }
}

}  // namespace heterog::decide

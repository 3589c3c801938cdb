// Draws points of the space.
#include "search/autosync/sync_space.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "decide/decisions.h"
#include "decide/layout.h"
#include "search/starts/balanced_servers.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::Strategy;
using decide::SyncMethod;

// The op that makes a chain's gradient, the last of several.
OpId ready_after(const cost::Problem& problem, const graph::UpdateChain& chain) {
  OpId last;
  for (const graph::Read& read : chain.reads) {
    if (!read.producer.valid()) continue;
    if (problem.graph->op(read.producer).phase == graph::Phase::kUpdate) continue;
    if (!last.valid() || last < read.producer) last = read.producer;
  }
  return last;
}

// Algorithm 1: server after server for the parts of the variables named, the largest first, each
// drawn by how far a server is below its part of the load, by bandwidth, in mean loads. (The
// paper's logits are in bytes, which is a choice of the emptiest.)
void place(const SyncSpace& space, SyncPoint& point, const std::vector<std::size_t>& which,
           Rng& rng) {
  const std::size_t servers = space.servers.size();
  std::vector<double> load(servers, 0);
  std::map<DeviceId, std::size_t> place_of;
  double all_rates = 0;
  for (std::size_t s = 0; s < servers; ++s) {
    place_of[space.servers[s]] = s;
    all_rates += space.rates[space.servers[s]];
  }
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    const SyncChoice& choice = point.choices[v];
    for (const decide::Replica& one : choice.servers) {
      load[place_of.at(one.device)] +=
          static_cast<double>(space.variables[v].bytes) * one.weight / choice.parts;
    }
  }
  std::vector<std::size_t> by_bytes;
  for (std::size_t v : which) {
    if (point.choices[v].method == SyncMethod::kParameterServer) by_bytes.push_back(v);
  }
  std::ranges::stable_sort(by_bytes, std::ranges::greater(),
                           [&](std::size_t v) { return space.variables[v].bytes; });
  std::vector<double> chances(servers);
  for (std::size_t v : by_bytes) {
    SyncChoice& choice = point.choices[v];
    const double bytes = static_cast<double>(space.variables[v].bytes) / choice.parts;
    for (std::uint32_t part = 0; part < choice.parts; ++part) {
      const double all = std::accumulate(load.begin(), load.end(), 0.0);
      const double mean = std::max(all / static_cast<double>(servers), 1.0);
      double sum = 0;
      for (std::size_t s = 0; s < servers; ++s) {
        const double own = all * space.rates[space.servers[s]] / all_rates;
        chances[s] = std::exp(std::min((own - load[s]) / mean, 30.0));
        sum += chances[s];
      }
      double at = rng.uniform() * sum;
      std::size_t s = 0;
      while (s + 1 < servers && at >= chances[s]) at -= chances[s++];
      load[s] += bytes;
      const auto known =
          std::ranges::find(choice.servers, space.servers[s], &decide::Replica::device);
      if (known != choice.servers.end()) {
        known->weight += 1;
      } else {
        choice.servers.push_back({space.servers[s], 1});
      }
    }
    std::ranges::sort(choice.servers, {}, &decide::Replica::device);
  }
}

// A method and parts, without servers. `served`, `sharded`: the chances.
SyncChoice draw_choice(const SyncSpace& space, const SyncVariable& variable, double served,
                       double sharded, Rng& rng) {
  SyncChoice choice;
  if (rng.uniform() < served) {
    choice.method = SyncMethod::kParameterServer;
    const auto most = std::min(variable.rows, static_cast<std::int64_t>(space.servers.size()));
    if (most > 1 && rng.below(2) == 0) {
      choice.parts = static_cast<std::uint32_t>(1 + rng.below(static_cast<std::uint64_t>(most)));
    }
  } else if (variable.by_rows && rng.uniform() < sharded) {
    choice.method = SyncMethod::kSharded;
  }
  return choice;
}

// From 1 to as many as there are variables, as often of each size.
std::uint32_t draw_groups(const SyncSpace& space, Rng& rng) {
  const auto most = static_cast<double>(space.variables.size());
  return static_cast<std::uint32_t>(std::exp(rng.uniform() * std::log(std::max(most, 1.0))));
}

// Algorithm 2: neighbours that are not served are merged until they have their part of the bytes.
void merge_neighbours(const SyncSpace& space, SyncPoint& point, std::uint32_t groups) {
  Bytes reduced = 0;
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    if (point.choices[v].method != SyncMethod::kParameterServer) {
      reduced += space.variables[v].bytes;
    }
  }
  const Bytes most = reduced / std::max(groups, 1u);
  point.ends.assign(point.choices.size(), 0);
  Bytes bytes = 0;
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    if (point.choices[v].method == SyncMethod::kParameterServer) continue;
    const Bytes own = space.variables[v].bytes;
    if (bytes > 0 && bytes + own > most) {
      point.ends[v - 1] = 1;
      bytes = 0;
    }
    bytes += own;
    if (bytes < most) continue;
    point.ends[v] = 1;
    bytes = 0;
  }
  point.ends.back() = 1;
}

// Ends of groups appear, go, or move to a neighbour.
void move_ends(SyncPoint& point, Rng& rng) {
  const std::size_t inner = point.ends.size() - 1;  // behind the last one there is always an end
  if (inner == 0) return;
  const std::size_t moved = 1 + rng.below(4);
  for (std::size_t i = 0; i < moved; ++i) {
    const std::size_t v = rng.below(inner);
    point.ends[v] = point.ends[v] == 0 ? 1 : 0;
    if (point.ends[v] != 0 || rng.below(2) == 0) continue;
    const std::size_t next = rng.below(2) == 0 ? v + 1 : v - 1;  // out of range before the first
    if (next < inner) point.ends[next] = 1;
  }
}

decide::OrderPolicy draw_order(Rng& rng) {
  return decide::kSearchedOrders[rng.below(decide::kSearchedOrders.size())];
}

}  // namespace

SyncSpace sync_space(const cost::Problem& problem) {
  SyncSpace space{.problem = &problem};
  const decide::Layout layout = decide::lay_out(problem, even_all_reduce(problem));
  const IdVector<TensorId, std::uint8_t> shared = can_have_several_servers(problem);
  std::map<std::vector<DeviceId>, std::uint32_t> holder_lists;
  std::vector<std::pair<OpId, SyncVariable>> found;
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    const std::vector<DeviceId>& holders = layout.home(chain.parameter).replicas;
    if (holders.size() < 2) continue;
    const auto shape = problem.graph->shape(chain.parameter);
    const auto list = static_cast<std::uint32_t>(holder_lists.size());
    found.push_back({ready_after(problem, chain),
                     {.parameter = chain.parameter,
                      .bytes = problem.graph->bytes(chain.parameter, 1),
                      .rows = shared[chain.parameter] != 0 ? shape[0].c : 1,
                      .by_rows = chain.by_rows,
                      .holders = holder_lists.try_emplace(holders, list).first->second}});
    if (space.servers.empty()) {
      space.servers = cluster::possible_servers(*problem.cluster, holders);
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.first; });
  for (auto& [op, variable] : found) {
    space.bytes += variable.bytes;
    space.variables.push_back(variable);
  }
  space.rates = network_rates(*problem.cluster, space.servers);
  return space;
}

SyncPoint draw_point(const SyncSpace& space, Rng& rng) {
  constexpr double kServed[] = {0, 0.25, 0.5, 0.75, 1};
  SyncPoint point;
  const double served = kServed[rng.below(std::size(kServed))];
  const double sharded = rng.below(2) == 0 ? 0 : rng.uniform();
  for (const SyncVariable& variable : space.variables) {
    point.choices.push_back(draw_choice(space, variable, served, sharded, rng));
  }
  merge_neighbours(space, point, draw_groups(space, rng));
  point.order = draw_order(rng);
  std::vector<std::size_t> all(space.variables.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  place(space, point, all, rng);
  return point;
}

SyncPoint draw_near(const SyncSpace& space, const SyncPoint& point, Rng& rng) {
  SyncPoint near = point;
  const std::size_t count = space.variables.size();
  switch (rng.below(4)) {
    case 0:
      if (rng.below(2) == 0) {
        merge_neighbours(space, near, draw_groups(space, rng));
      } else {
        move_ends(near, rng);
      }
      return near;
    case 1:
      near.order = draw_order(rng);
      return near;
    default:
      break;
  }
  // Neighbours in the backward pass, or here and there, by one method.
  const std::size_t most = std::max<std::size_t>(1, count / (std::size_t{1} << rng.below(6)));
  const std::size_t changed = 1 + rng.below(most);
  const std::size_t first = rng.below(count);
  const bool beside = rng.below(2) == 0;
  const SyncChoice like = draw_choice(space, space.variables[first], 0.5, 0.25, rng);
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < changed; ++i) {
    which.push_back(beside ? (first + i) % count : rng.below(count));
  }
  std::ranges::sort(which);
  which.erase(std::ranges::unique(which).begin(), which.end());
  for (std::size_t v : which) {
    const SyncVariable& variable = space.variables[v];
    SyncChoice& choice = near.choices[v] = SyncChoice{.method = like.method};
    if (like.method == SyncMethod::kSharded && !variable.by_rows) {
      choice.method = SyncMethod::kAllReduce;
    } else if (like.method == SyncMethod::kParameterServer) {
      choice.parts = static_cast<std::uint32_t>(std::min<std::int64_t>(like.parts, variable.rows));
    }
  }
  place(space, near, which, rng);
  return near;
}

SyncGroups sync_groups(const SyncSpace& space, const SyncPoint& point) {
  SyncGroups groups{.of = std::vector<std::uint32_t>(point.choices.size(), 0)};
  // Since the last end: by method and holders, 1 + the collective.
  std::map<std::pair<SyncMethod, std::uint32_t>, std::uint32_t> open;
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    const SyncVariable& variable = space.variables[v];
    const SyncMethod method = point.choices[v].method;
    if (method != SyncMethod::kParameterServer) {
      std::uint32_t& own = open[{method, variable.holders}];
      if (own == 0) {
        groups.bytes.push_back(0);
        groups.variables.push_back(0);
        own = static_cast<std::uint32_t>(groups.bytes.size());
      }
      groups.of[v] = own;
      groups.bytes[own - 1] += variable.bytes;
      ++groups.variables[own - 1];
    }
    if (point.ends[v] != 0) open.clear();
  }
  return groups;
}

decide::Strategy to_strategy(const SyncSpace& space, const SyncPoint& point) {
  Strategy strategy = even_all_reduce(*space.problem);
  strategy.order = point.order;
  const SyncGroups groups = sync_groups(space, point);
  for (std::size_t v = 0; v < point.choices.size(); ++v) {
    const SyncChoice& choice = point.choices[v];
    decide::ParameterSync sync{
        .parameter = space.variables[v].parameter, .method = choice.method, .group = groups.of[v]};
    if (choice.servers.size() == 1) {
      sync.server = choice.servers.front().device;
    } else {
      sync.servers = choice.servers;
    }
    strategy.sync.push_back(std::move(sync));
  }
  return strategy;
}

double similarity(const SyncPoint& a, const SyncPoint& b) {
  std::size_t same = a.order == b.order ? 1 : 0;
  for (std::size_t v = 0; v < a.choices.size(); ++v) {
    const SyncChoice &x = a.choices[v], &y = b.choices[v];
    same += (x.method == y.method ? 1 : 0) + (x.parts == y.parts ? 1 : 0) +
            (x.servers == y.servers ? 1 : 0) + (a.ends[v] == b.ends[v] ? 1 : 0);
  }
  return static_cast<double>(same) / static_cast<double>(4 * a.choices.size() + 1);
}

}  // namespace heterog::search

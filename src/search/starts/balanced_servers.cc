// Servers by bytes, in the order of the parameters.
#include "search/starts/balanced_servers.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "decide/layout.h"
#include "graph/lookups.h"
#include "search/best_of.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::Strategy;

// Who may serve a parameter that several devices hold; of others, and of those that no device
// holds, nobody.
std::vector<DeviceId> servers_of(const cost::Problem& problem, const decide::Layout& layout,
                                 const graph::UpdateChain& chain) {
  if (layout.home_of[chain.parameter] == decide::Layout::kNoHome) return {};
  const std::vector<DeviceId>& holders = layout.home(chain.parameter).replicas;
  if (holders.size() < 2) return {};
  std::vector<DeviceId> devices;
  for (DeviceId holder : holders) {
    if (!problem.cluster->is_host(holder)) devices.push_back(holder);
  }
  return cluster::possible_servers(*problem.cluster, devices);
}

// Most parameters have the same servers.
class KnownRates {
 public:
  const IdVector<DeviceId, double>& of(const cluster::Cluster& cluster,
                                       const std::vector<DeviceId>& servers) {
    const auto [at, is_new] = rates_.try_emplace(servers);
    if (is_new) at->second = network_rates(cluster, servers);
    return at->second;
  }

 private:
  std::map<std::vector<DeviceId>, IdVector<DeviceId, double>> rates_;
};

// Those of the parameters that `goes` names, each to the server that then has the least to do: by
// bytes, or by seconds of bytes on its network.
enum class Load : std::uint8_t { kBytes, kSeconds };
template <class Goes>
void balance(const cost::Problem& problem, Strategy& strategy, Load by, const Goes& goes) {
  const decide::Layout layout = decide::lay_out(problem, strategy);
  IdVector<DeviceId, double> loads(problem.cluster->place_count(), 0.0);
  KnownRates known_rates;
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    // Where the batch has fewer samples than there are devices, some hold no parameter.
    const std::vector<DeviceId> servers = servers_of(problem, layout, chain);
    if (servers.empty() || !goes(chain, layout.home(chain.parameter))) continue;
    const auto bytes = static_cast<double>(problem.graph->bytes(chain.parameter, 1));
    const auto loaded = [&](DeviceId server) {
      const double rate =
          by == Load::kBytes ? 1 : known_rates.of(*problem.cluster, servers)[server];
      return loads[server] + bytes / rate;
    };
    const DeviceId least = *std::ranges::min_element(servers, {}, loaded);
    loads[least] = loaded(least);
    strategy.sync.push_back({.parameter = chain.parameter,
                             .method = decide::SyncMethod::kParameterServer,
                             .server = least});
  }
}

// Of so many rows, how many parts.
std::size_t least_divisor(std::int64_t rows) {
  std::int64_t divisor = 2;
  while (divisor * divisor <= rows && rows % divisor != 0) ++divisor;
  return static_cast<std::size_t>(rows % divisor == 0 ? divisor : rows);
}

class Balanced final : public Planner {
 public:
  using Make = std::function<Strategy(const cost::Problem&)>;
  Balanced(Make make, BaselineOrder order) : make_(std::move(make)), order_(order) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> strategies;
    const Strategy made = make_(context.problem());
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      strategies.push_back(made);
      strategies.back().order = order;
      if (!in_order(strategies.back(), order_)) strategies.pop_back();
    }
    return best_of(strategies.size(), [&](std::size_t i) { return strategies[i]; }, context.oracle,
                   {});
  }

 private:
  Make make_;
  BaselineOrder order_;
};

PlannerEntry balanced_entry(std::string_view name, std::string_view one_line,
                            Strategy (*make)(const cost::Problem&)) {
  return planner_entry<BaselineOptions>(name, one_line, kBaselineFields,
                                        [make](const BaselineOptions& options) {
                                          return std::make_unique<Balanced>(make, options.order);
                                        });
}

}  // namespace

bool has_sparse_gradient(const graph::ModelGraph& graph, const graph::UpdateChain& chain) {
  return std::ranges::any_of(chain.reads, [&](const graph::Read& read) {
    return graph::lookups(graph, read.tensor, 1).has_value();
  });
}

Strategy balanced_ps(const cost::Problem& problem) {
  Strategy strategy = even_ps(problem);
  balance(problem, strategy, Load::kBytes,
          [](const graph::UpdateChain&, const decide::ParameterHome&) { return true; });
  return strategy;
}

Strategy parallax(const cost::Problem& problem) {
  Strategy strategy = even_all_reduce(problem);
  balance(problem, strategy, Load::kBytes,
          [&](const graph::UpdateChain& chain, const decide::ParameterHome&) {
            return has_sparse_gradient(*problem.graph, chain);
          });
  return strategy;
}

IdVector<DeviceId, double> network_rates(const cluster::Cluster& cluster,
                                         std::span<const DeviceId> places) {
  IdVector<DeviceId, double> rates(cluster.place_count(), 0.0);
  for (DeviceId place : places) {
    double rate = 0, beside = 0;
    bool has_others = false;
    for (DeviceId other : places) {
      if (cluster.same_machine(place, other)) {
        ++beside;
        continue;
      }
      has_others = true;
      for (LinkId link : cluster.route(place, other).links) {
        const double one = cluster.link(link).bytes_per_second;
        if (rate == 0 || one < rate) rate = one;
      }
    }
    rates[place] = has_others ? rate / beside : 1;
  }
  // As weights of servers they are to be numbers of no great size.
  const double most = std::ranges::max(rates);
  for (double& rate : rates) rate /= most;
  return rates;
}

IdVector<TensorId, std::uint8_t> can_have_several_servers(const cost::Problem& problem) {
  // Whether a parameter can be dealt does not depend on who serves it.
  Strategy asked = even_ps(problem);
  const decide::Layout whole = decide::lay_out(problem, asked);
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    const std::vector<DeviceId> servers = servers_of(problem, whole, chain);
    if (servers.size() < 2) continue;
    asked.sync.push_back({.parameter = chain.parameter,
                          .method = decide::SyncMethod::kParameterServer,
                          .servers = {{servers[0]}, {servers[1]}}});
  }
  const decide::Layout dealt = decide::lay_out(problem, asked);
  IdVector<TensorId, std::uint8_t> can(problem.graph->tensor_count(), 0);
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    can[chain.parameter] = dealt.home(chain.parameter).partitioned() ? 1 : 0;
  }
  return can;
}

Strategy partitioned_ps(const cost::Problem& problem, ServerParts parts) {
  Strategy strategy = even_ps(problem);
  const cluster::Cluster& cluster = *problem.cluster;
  const decide::Layout whole = decide::lay_out(problem, strategy);
  const IdVector<TensorId, std::uint8_t> can = can_have_several_servers(problem);
  KnownRates known_rates;
  IdVector<DeviceId, double> loads(cluster.place_count(), 0.0);  // seconds
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    std::vector<DeviceId> servers = servers_of(problem, whole, chain);
    if (servers.empty()) continue;
    const IdVector<DeviceId, double>& rates = known_rates.of(cluster, servers);
    std::ranges::stable_sort(servers, {}, [&](DeviceId server) { return loads[server]; });
    std::size_t count = 1;
    if (can[chain.parameter] != 0) {
      const auto rows = problem.graph->shape(chain.parameter)[0].c;
      const Bytes bytes = problem.graph->bytes(chain.parameter, 1);
      const std::size_t wanted =
          parts == ServerParts::kBytes
              ? std::max<std::size_t>(1, static_cast<std::size_t>(bytes / kLeastServedBytes))
              : least_divisor(rows);
      count = std::min({wanted, servers.size(), static_cast<std::size_t>(rows)});
    }
    servers.resize(count);
    decide::ParameterSync& sync = strategy.sync.emplace_back(decide::ParameterSync{
        .parameter = chain.parameter, .method = decide::SyncMethod::kParameterServer});
    if (count == 1) sync.server = servers.front();
    double rate = 0;
    for (DeviceId server : servers) {
      const double weight = parts == ServerParts::kBytes ? rates[server] : 1;
      if (count > 1) sync.servers.push_back({server, weight});
      rate += weight;
    }
    const auto bytes = static_cast<double>(problem.graph->bytes(chain.parameter, 1));
    for (DeviceId server : servers) {
      const double weight = parts == ServerParts::kBytes ? rates[server] : 1;
      loads[server] += bytes * weight / rate / rates[server];
    }
  }
  return strategy;
}

double transfers_of_several_servers(const cost::Problem& problem) {
  const auto devices = static_cast<double>(problem.cluster->device_count());
  double transfers = 0;
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    const Bytes bytes = problem.graph->bytes(chain.parameter, 1);
    const double parts = std::min(devices, static_cast<double>(bytes / kLeastServedBytes));
    if (parts >= 2) transfers += 2 * parts * devices;
  }
  return transfers;
}

Strategy with_several_servers(const cost::Problem& problem, Strategy strategy, bool of_all) {
  const cluster::Cluster& cluster = *problem.cluster;
  const decide::Layout layout = decide::lay_out(problem, strategy);
  std::set<TensorId> named;
  for (const decide::ParameterSync& sync : strategy.sync) named.insert(sync.parameter);
  const std::size_t kept = strategy.sync.size();
  KnownRates known_rates;
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    if (layout.home_of[chain.parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = layout.home(chain.parameter);
    const bool served = home.method == decide::SyncMethod::kParameterServer;
    if (!chain.by_rows || named.contains(chain.parameter) || !(of_all || served)) continue;
    const std::vector<DeviceId> servers = servers_of(problem, layout, chain);
    const Bytes parts = problem.graph->bytes(chain.parameter, 1) / kLeastServedBytes;
    if (std::min<Bytes>(parts, std::ssize(servers)) < 2) continue;
    const IdVector<DeviceId, double>& rates = known_rates.of(cluster, servers);
    decide::ParameterSync sync{.parameter = chain.parameter,
                               .method = decide::SyncMethod::kParameterServer};
    for (DeviceId server : servers) sync.servers.push_back({server, rates[server]});
    strategy.sync.push_back(std::move(sync));
  }
  // What cannot be dealt stays as it was.
  const decide::Layout dealt = decide::lay_out(problem, strategy);
  const auto asked = strategy.sync.begin() + static_cast<std::ptrdiff_t>(kept);
  strategy.sync.erase(std::remove_if(asked, strategy.sync.end(),
                                     [&](const decide::ParameterSync& sync) {
                                       return !dealt.home(sync.parameter).partitioned();
                                     }),
                      strategy.sync.end());
  return strategy;
}

Strategy with_balanced_servers(const cost::Problem& problem, Strategy strategy) {
  std::set<TensorId> named;
  for (const decide::ParameterSync& sync : strategy.sync) named.insert(sync.parameter);
  balance(problem, strategy, Load::kSeconds,
          [&](const graph::UpdateChain& chain, const decide::ParameterHome& home) {
            return home.method == decide::SyncMethod::kParameterServer &&
                   !named.contains(chain.parameter);
          });
  return strategy;
}

std::vector<PlannerEntry> balanced_server_entries() {
  static constexpr std::array<std::string_view, 2> kPartsWords = {"divisor", "bytes"};
  static constexpr std::array<Field<PartitionedOptions>, 2> kPartitionedFields = {
      baseline_order_field<PartitionedOptions>(),
      Field<PartitionedOptions>{
          "parts",
          "servers a parameter: the least divisor above 1 of its rows (AutoDist), or as many as "
          "have 64 KiB of it or more, by the bandwidth of their networks",
          choice<PartitionedOptions, &PartitionedOptions::parts>(kPartsWords)}};
  return {
      balanced_entry("ps-lb", "ev-ps with servers chosen by bytes alone (AutoDist)", balanced_ps),
      balanced_entry("parallax",
                     "ev-ar, but servers for tables whose gradients are rows (Parallax)", parallax),
      planner_entry<PartitionedOptions>(
          "partitioned-ps", "ev-ps with the rows of each parameter on several servers (AutoDist)",
          kPartitionedFields, [](const PartitionedOptions& options) {
            const auto make = [parts = options.parts](const cost::Problem& problem) {
              return partitioned_ps(problem, parts);
            };
            return std::make_unique<Balanced>(make, options.order);
          })};
}

}  // namespace heterog::search

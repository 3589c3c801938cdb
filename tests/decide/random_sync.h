// Decisions of single parameters: servers of rows, and groups that share a collective.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "decide/layout.h"

namespace heterog::decide {

// About a third of the parameters that several devices hold get servers of unequal rows.
inline void deal_to_random_servers(const cost::Problem& problem, Rng& rng, Strategy& strategy) {
  const Layout layout = lay_out(problem, strategy);
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == Layout::kNoHome || rng.below(3) > 0) continue;
    std::vector<DeviceId> holders;
    for (DeviceId replica : layout.home(parameter).replicas) {
      if (!problem.cluster->is_host(replica)) holders.push_back(replica);
    }
    if (holders.size() < 2) continue;
    ParameterSync sync{.parameter = parameter, .method = SyncMethod::kParameterServer};
    for (DeviceId server : cluster::possible_servers(*problem.cluster, holders)) {
      if (rng.below(3) > 0)
        sync.servers.push_back({server, 1.0 + static_cast<double>(rng.below(4))});
    }
    strategy.sync.push_back(sync);
  }
}

// About half of the parameters that no entry names and that are all-reduced or sharded, in three
// groups for each method and set of devices.
inline void draw_random_groups(const cost::Problem& problem, Rng& rng, Strategy& strategy) {
  const Layout layout = lay_out(problem, strategy);
  std::map<std::pair<SyncMethod, std::vector<DeviceId>>, std::uint32_t> kinds;
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == Layout::kNoHome || rng.below(2) == 0) continue;
    if (std::ranges::count(strategy.sync, parameter, &ParameterSync::parameter) > 0) continue;
    const ParameterHome& home = layout.home(parameter);
    if (home.method == SyncMethod::kParameterServer) continue;
    const auto next = static_cast<std::uint32_t>(kinds.size());
    const auto kind = kinds.try_emplace({home.method, home.replicas}, next).first->second;
    strategy.sync.push_back({.parameter = parameter,
                             .method = home.method,
                             .group = 1 + 3 * kind + static_cast<std::uint32_t>(rng.below(3))});
  }
}

}  // namespace heterog::decide

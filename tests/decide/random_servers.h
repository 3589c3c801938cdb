// Parameters whose rows go to some of those who may serve them.
#pragma once

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

}  // namespace heterog::decide

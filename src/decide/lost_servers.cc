// Who holds a parameter follows from the decisions alone.
#include "decide/lost_servers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "decide/check_strategy.h"
#include "decide/layout.h"

namespace heterog::decide {

std::vector<ParameterSync> without_lost_servers(const cost::Problem& problem,
                                                const Strategy& strategy) {
  if (strategy.sync.empty()) return {};
  Strategy without = strategy;
  without.sync.clear();
  const Layout layout = lay_out(problem, without);
  std::map<std::uint32_t, TensorId> first_of;  // by group
  std::vector<ParameterSync> left = strategy.sync;
  for (ParameterSync& sync : left) {
    const auto is_lost = [&](DeviceId server) {
      return server.valid() && !may_serve(problem, layout, sync.parameter, server);
    };
    if (is_lost(sync.server)) sync.server = {};
    std::erase_if(sync.servers, [&](const Replica& one) { return is_lost(one.device); });
    if (sync.group == 0 || layout.home_of[sync.parameter] == Layout::kNoHome) continue;
    const TensorId first = first_of.try_emplace(sync.group, sync.parameter).first->second;
    const bool together =
        std::ranges::equal(layout.home(sync.parameter).devices(), layout.home(first).devices());
    if (!together) sync.group = 0;
  }
  return left;
}

}  // namespace heterog::decide

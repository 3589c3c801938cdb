// Servers by bytes, in the order of the parameters.
#include "search/starts/balanced_servers.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "decide/layout.h"
#include "graph/lookups.h"
#include "search/best_of.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::Strategy;

// Those of the parameters that `goes` names.
template <class Goes>
void balance(const cost::Problem& problem, Strategy& strategy, const Goes& goes) {
  const decide::Layout layout = decide::lay_out(problem, strategy);
  IdVector<DeviceId, Bytes> loads(problem.cluster->place_count(), 0);
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    // Where the batch has fewer samples than there are devices, some hold no parameter.
    const std::vector<DeviceId>& holders = layout.home(chain.parameter).replicas;
    if (!goes(chain) || holders.size() < 2) continue;
    const std::vector<DeviceId> servers = cluster::possible_servers(*problem.cluster, holders);
    const DeviceId least =
        *std::ranges::min_element(servers, {}, [&](DeviceId server) { return loads[server]; });
    loads[least] += problem.graph->bytes(chain.parameter, 1);
    strategy.sync.push_back({.parameter = chain.parameter,
                             .method = decide::SyncMethod::kParameterServer,
                             .server = least});
  }
}

class Balanced final : public Planner {
 public:
  Balanced(Strategy (*make)(const cost::Problem&), BaselineOrder order)
      : make_(make), order_(order) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> strategies;
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      strategies.push_back(make_(context.problem()));
      strategies.back().order = order;
      if (!in_order(strategies.back(), order_)) strategies.pop_back();
    }
    return best_of(strategies.size(), [&](std::size_t i) { return strategies[i]; }, context.oracle,
                   {});
  }

 private:
  Strategy (*make_)(const cost::Problem&);
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
  balance(problem, strategy, [](const graph::UpdateChain&) { return true; });
  return strategy;
}

Strategy parallax(const cost::Problem& problem) {
  Strategy strategy = even_all_reduce(problem);
  balance(problem, strategy, [&](const graph::UpdateChain& chain) {
    return has_sparse_gradient(*problem.graph, chain);
  });
  return strategy;
}

std::vector<PlannerEntry> balanced_server_entries() {
  return {
      balanced_entry("ps-lb", "ev-ps with servers chosen by bytes alone (AutoDist)", balanced_ps),
      balanced_entry("parallax",
                     "ev-ar, but servers for tables whose gradients are rows (Parallax)",
                     parallax)};
}

}  // namespace heterog::search

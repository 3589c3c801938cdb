// A line search, along two orders of the groups, over how many of them servers sum up.
//
// Neither method is best for all groups. A collective slows the computation beside it, a push does
// not; each push and pull has its latency, while all-reduces of small gradients share a bucket. So
// large gradients gain by servers and small ones do not. The last groups' gradients are there first
// and have most of the backward pass to travel; those of the first groups all wait for.
#include "search/starts/sync_split.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

namespace heterog::search {

namespace {

using decide::Strategy;
using decide::SyncMethod;
using Order = std::vector<GroupId>;  // servers take the first

constexpr int kParts = 16;

// Groups whose gradients are summed among devices.
Order summed_groups(const space::GroupSummaries& groups, const Strategy& strategy) {
  Order summed;
  for (GroupId group : id_range<GroupId>(groups.size())) {
    if (groups[group].parameter_bytes == 0) continue;
    if (strategy.units[UnitId(group.value())].replicas.size() > 1) summed.push_back(group);
  }
  return summed;
}

Order largest_first(const space::GroupSummaries& groups, Order order) {
  std::ranges::stable_sort(order, [&](GroupId a, GroupId b) {
    return groups[a].parameter_bytes > groups[b].parameter_bytes;
  });
  return order;
}

Order last_first(Order order) {
  std::ranges::reverse(order);
  return order;
}

Strategy with_split(Strategy strategy, const Order& order, int part) {
  if (strategy.order == decide::OrderPolicy::kRank) {
    strategy.order = decide::OrderPolicy::kRankQueued;
  }
  const std::size_t served = (order.size() * static_cast<std::size_t>(part) + kParts - 1) / kParts;
  for (std::size_t i = 0; i < order.size(); ++i) {
    strategy.units[UnitId(order[i].value())].sync =
        i < served ? SyncMethod::kParameterServer : SyncMethod::kAllReduce;
  }
  return strategy;
}

struct Split {
  const Order* order = nullptr;
  int part = 0;
  Tried tried;
};

}  // namespace

Tried split_syncs(BatchEvaluator& evaluator, const space::GroupSummaries& groups,
                  const Tried& start, bool coarse) {
  const Order summed = summed_groups(groups, start.strategy);
  if (summed.empty()) return start;
  if (evaluator.spent()) return start;
  const std::array<Order, 2> orders = {largest_first(groups, summed), last_first(summed)};
  Split best;
  const auto try_all = [&](const std::vector<std::pair<const Order*, int>>& splits) {
    if (evaluator.spent()) return;
    std::vector<Strategy> strategies;
    for (const auto& [order, part] : splits) {
      if (std::ssize(strategies) == evaluator.evaluations_left()) break;
      strategies.push_back(with_split(start.strategy, *order, part));
    }
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const Evaluation& evaluation = measured[i].evaluation;
      if (best.order != nullptr && !better(evaluation, best.tried.evaluation)) continue;
      best = {splits[i].first, splits[i].second, {std::move(strategies[i]), evaluation}};
    }
  };
  if (coarse) {
    try_all({{&orders[0], 8}, {&orders[0], 12}, {&orders[1], 8}, {&orders[1], 12}});
  } else {
    try_all({{&orders[0], 4},
             {&orders[0], 8},
             {&orders[0], 12},
             {&orders[0], 16},
             {&orders[1], 4},
             {&orders[1], 8},
             {&orders[1], 12}});
    for (const int step : {2, 1}) {
      const Split from = best;
      try_all({{from.order, from.part - step}, {from.order, std::min(from.part + step, kParts)}});
    }
  }
  return better(best.tried.evaluation, start.evaluation) ? best.tried : start;
}

}  // namespace heterog::search

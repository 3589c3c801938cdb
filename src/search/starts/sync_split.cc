// A line search, along a few orders of the groups, over how many of them servers sum up.
//
// Neither method is best for all groups. A collective slows the computation beside it, a push does
// not; each push and pull has its latency, while all-reduces of small gradients share a bucket. So
// large gradients gain by servers and small ones do not. The last groups' gradients are there first
// and have most of the backward pass to travel; those of the first groups all wait for. On many
// machines it may be the other way round: the server of a gradient takes in one from every machine
// and hands a parameter out to each, while what passes a link in an all-reduce hardly grows. There
// the few largest gradients gain by large all-reduces, and the many small ones by servers.
#include "search/starts/sync_split.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "decide/decisions.h"

namespace heterog::search {

namespace {

using decide::Strategy;
using decide::SyncMethod;
using Groups = std::vector<GroupId>;

struct Order {
  Groups groups;          // servers take the first
  bool enlarges = false;  // the buckets of the others
};

constexpr int kParts = 16;

// Groups whose gradients are summed among devices.
Groups summed_groups(const space::GroupSummaries& groups, const Strategy& strategy) {
  Groups summed;
  for (GroupId group : id_range<GroupId>(groups.size())) {
    if (groups[group].parameter_bytes == 0) continue;
    if (strategy.units[UnitId(group.value())].replicas.size() > 1) summed.push_back(group);
  }
  return summed;
}

Order largest_first(const space::GroupSummaries& groups, Groups summed) {
  std::ranges::stable_sort(summed, [&](GroupId a, GroupId b) {
    return groups[a].parameter_bytes > groups[b].parameter_bytes;
  });
  return {std::move(summed)};
}

Order smallest_first(const space::GroupSummaries& groups, Groups summed) {
  std::ranges::stable_sort(summed, {},
                           [&](GroupId group) { return groups[group].parameter_bytes; });
  return {std::move(summed), /*enlarges=*/true};
}

Order last_first(Groups summed) {
  std::ranges::reverse(summed);
  return {std::move(summed)};
}

Strategy with_split(Strategy strategy, const Order& order, int part) {
  if (strategy.order == decide::OrderPolicy::kRank) {
    strategy.order = decide::OrderPolicy::kRankQueued;
  }
  if (order.enlarges) strategy.bucket_bytes = decide::kLargestBucketBytes;
  const std::size_t served =
      (order.groups.size() * static_cast<std::size_t>(part) + kParts - 1) / kParts;
  for (std::size_t i = 0; i < order.groups.size(); ++i) {
    strategy.units[UnitId(order.groups[i].value())].sync =
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
  const Groups summed = summed_groups(groups, start.strategy);
  if (summed.empty()) return start;
  if (evaluator.spent()) return start;
  const Order largest = largest_first(groups, summed), smallest = smallest_first(groups, summed);
  const Order last = last_first(summed);
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
    try_all({{&largest, 8},
             {&largest, 12},
             {&last, 8},
             {&last, 12},
             {&smallest, 12},
             {&smallest, 14},
             {&smallest, 15}});
  } else {
    try_all({{&largest, 4},
             {&largest, 8},
             {&largest, 12},
             {&largest, 16},
             {&last, 4},
             {&last, 8},
             {&last, 12}});
    for (const int step : {2, 1}) {
      const Split from = best;
      try_all({{from.order, from.part - step}, {from.order, std::min(from.part + step, kParts)}});
    }
  }
  return better(best.tried.evaluation, start.evaluation) ? best.tried : start;
}

}  // namespace heterog::search

// Slices of the batch, uniform strategies, names.
#include "decide/strategy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heterog::decide {

std::string_view sync_method_name(SyncMethod method) {
  switch (method) {
    case SyncMethod::kParameterServer:
      return "ps";
    case SyncMethod::kAllReduce:
      return "all-reduce";
    case SyncMethod::kSharded:
      return "sharded";
    case SyncMethod::kGathered:
      return "gathered";
  }
  return "?";
}

std::string_view order_policy_name(OrderPolicy policy) {
  switch (policy) {
    case OrderPolicy::kRank:
      return "rank";
    case OrderPolicy::kFifo:
      return "fifo";
    case OrderPolicy::kPriority:
      return "priority";
    case OrderPolicy::kRankQueued:
      return "rank-queued";
  }
  return "";
}

std::optional<OrderPolicy> find_order_policy(std::string_view name) {
  for (OrderPolicy policy :
       {OrderPolicy::kRank, OrderPolicy::kFifo, OrderPolicy::kPriority, OrderPolicy::kRankQueued}) {
    if (name == order_policy_name(policy)) return policy;
  }
  return std::nullopt;
}

std::string_view pattern_name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kNone:
      return "none";
    case Pattern::kDepthFirst:
      return "depth-first";
    case Pattern::kForwardFirst:
      return "forward-first";
    case Pattern::kOneForwardOneBackward:
      return "1f1b";
    case Pattern::kListed:
      return "listed";
    case Pattern::kZeroBubble:
      return "zero-bubble";
  }
  return "";
}

std::optional<Pattern> find_pattern(std::string_view name) {
  for (Pattern pattern : kPatterns) {
    if (name == pattern_name(pattern)) return pattern;
  }
  return std::nullopt;
}

void set_plain_order(Strategy& strategy, OrderPolicy order) {
  strategy.order = order;
  strategy.priorities.clear();
  strategy.order_rounds = 0;
  if (!strategy.strict) strategy.pattern = Pattern::kNone;
}

Strategy uniform_strategy(const cost::Problem& problem, const UnitDecision& decision) {
  Strategy strategy;
  strategy.units.assign(problem.grouping.count(), decision);
  return strategy;
}

UnitDecision even_decision(const cost::Problem& problem, SyncMethod sync) {
  UnitDecision decision;
  decision.sync = sync;
  for (DeviceId device : problem.cluster->device_ids()) decision.replicas.push_back({device, 1.0});
  return decision;
}

UnitDecision proportional_decision(const cost::Problem& problem, SyncMethod sync) {
  UnitDecision decision;
  decision.sync = sync;
  for (DeviceId device : problem.cluster->device_ids()) {
    decision.replicas.push_back(
        {device, static_cast<double>(problem.proportional[device.value()])});
  }
  return decision;
}

UnitDecision single_decision(DeviceId device) { return {{{device, 1.0}}, SyncMethod::kAllReduce}; }

namespace {

// A slice of each replica, in their order, which may be empty.
std::vector<Slice> slices_of_replicas(const std::vector<Replica>& replicas, std::int64_t batch) {
  double total = 0;
  for (const Replica& replica : replicas) total += replica.weight;
  std::vector<std::int64_t> sizes(replicas.size());
  std::vector<double> remainder(replicas.size());
  std::int64_t given = 0;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const double exact = static_cast<double>(batch) * replicas[i].weight / total;
    sizes[i] = static_cast<std::int64_t>(std::floor(exact));
    remainder[i] = exact - static_cast<double>(sizes[i]);
    given += sizes[i];
  }
  std::vector<std::size_t> by_remainder(replicas.size());
  std::iota(by_remainder.begin(), by_remainder.end(), 0);
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; given < batch; i = (i + 1) % replicas.size(), ++given) {
    ++sizes[by_remainder[i]];
  }
  // Rounding of the quotients can give one too many in total; take it back from the last.
  for (std::size_t i = replicas.size(); given > batch && i-- > 0;) {
    const std::int64_t back = std::min(given - batch, sizes[i]);
    sizes[i] -= back;
    given -= back;
  }
  std::vector<Slice> slices;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    slices.push_back({replicas[i].device, at, at + sizes[i]});
    at += sizes[i];
  }
  return slices;
}

}  // namespace

UnitId unit_of(const cost::Problem& problem, const Strategy& strategy, OpId op) {
  if (!strategy.unit_of_op.empty()) return strategy.unit_of_op[op];
  return UnitId(problem.grouping.group_of[op].value());
}

IdVector<OpId, UnitId> units_of_ops(const cost::Problem& problem, const Strategy& strategy) {
  IdVector<OpId, UnitId> units(problem.graph->op_count());
  for (OpId op : problem.graph->op_ids()) units[op] = unit_of(problem, strategy, op);
  return units;
}

std::vector<Slice> merge_by_device(std::span<const Slice> slices) {
  std::vector<Slice> merged;
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> place;  // [device]
  for (const Slice& slice : slices) {
    if (slice.device.value() >= place.size()) place.resize(slice.device.value() + 1, kNone);
    std::size_t& at = place[slice.device.value()];
    if (at == kNone) {
      at = merged.size();
      merged.push_back({slice.device, 0, slice.size()});
    } else {
      merged[at].end += slice.size();
    }
  }
  std::int64_t at = 0;
  for (Slice& slice : merged) {
    slice = {slice.device, at, at + slice.end};
    at = slice.end;
  }
  return merged;
}

std::vector<Slice> slice_batch(const std::vector<Replica>& replicas, std::int64_t batch) {
  std::vector<Slice> slices = merge_by_device(slices_of_replicas(replicas, batch));
  std::erase_if(slices, [](const Slice& slice) { return slice.size() == 0; });
  return slices;
}

std::vector<std::int64_t> deal_rows(std::int64_t rows, std::span<const DeviceId> devices,
                                    const IdVector<DeviceId, double>& weights) {
  std::vector<Replica> replicas;
  for (DeviceId device : devices) {
    replicas.push_back({device, weights.empty() ? 1.0 : weights[device]});
  }
  std::vector<std::int64_t> cuts{0};
  for (const Slice& slice : slices_of_replicas(replicas, rows)) cuts.push_back(slice.end);
  return cuts;
}

}  // namespace heterog::decide

// Slices of the batch, uniform strategies, and the check that a strategy fits its problem.
#include "compiler/strategy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "compiler/layout.h"

namespace heterog::compiler {

std::string_view sync_method_name(SyncMethod method) {
  return method == SyncMethod::kParameterServer ? "ps" : "all-reduce";
}

std::string_view order_policy_name(OrderPolicy policy) {
  switch (policy) {
    case OrderPolicy::kRank:
      return "rank";
    case OrderPolicy::kRankReserve:
      return "rank-reserve";
    case OrderPolicy::kFifo:
      return "fifo";
    case OrderPolicy::kPriority:
      return "priority";
  }
  return "";
}

std::optional<OrderPolicy> find_order_policy(std::string_view name) {
  for (OrderPolicy policy : {OrderPolicy::kRank, OrderPolicy::kRankReserve, OrderPolicy::kFifo,
                             OrderPolicy::kPriority}) {
    if (name == order_policy_name(policy)) return policy;
  }
  return std::nullopt;
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

// Each entry by itself, and that none contradicts another.
void check_sync(const cost::Problem& problem, const Strategy& strategy, std::string_view source) {
  const std::size_t devices = problem.cluster->device_count();
  std::set<TensorId> seen;
  for (std::size_t i = 0; i < strategy.sync.size(); ++i) {
    const ParameterSync& sync = strategy.sync[i];
    VALIDATE(sync.parameter.value() < problem.graph->tensor_count() &&
                 problem.graph->tensor(sync.parameter).role == graph::TensorRole::kParameter,
             "{}: sync[{}]: tensor {} is not a parameter", source, i, sync.parameter.value());
    const std::string& name = problem.graph->tensor(sync.parameter).name;
    VALIDATE(seen.insert(sync.parameter).second,
             "{}: sync[{}]: parameter '{}' stands twice, expected one entry", source, i, name);
    VALIDATE(!sync.server.valid() || sync.server.value() < devices,
             "{}: sync[{}]: server {}, the cluster has {} devices", source, i, sync.server.value(),
             devices);
    VALIDATE(
        !sync.server.valid() || sync.method == SyncMethod::kParameterServer,
        "{}: sync[{}]: parameter '{}' has a server, {}, and method all-reduce; expected method "
        "ps, or no server",
        source, i, name, problem.cluster->device(sync.server).name);
  }
}

// A server is one of the devices that hold the parameter (decision 5), which does not depend on how
// its gradients travel.
void check_servers(const cost::Problem& problem, const Strategy& strategy,
                   std::string_view source) {
  const auto names_server = [](const ParameterSync& sync) { return sync.server.valid(); };
  if (std::none_of(strategy.sync.begin(), strategy.sync.end(), names_server)) return;
  Strategy without = strategy;
  without.sync.clear();
  const Layout layout = lay_out(problem, without);
  for (std::size_t i = 0; i < strategy.sync.size(); ++i) {
    const ParameterSync& sync = strategy.sync[i];
    if (!sync.server.valid()) continue;
    std::string held;
    bool holds = false;
    if (layout.home_of[sync.parameter] != Layout::kNoHome) {
      for (DeviceId replica : layout.home(sync.parameter).replicas) {
        holds |= replica == sync.server;
        held += (held.empty() ? "" : ", ") + problem.cluster->device(replica).name;
      }
    }
    VALIDATE(holds, "{}: sync[{}]: server {} has no replica of parameter '{}', which is on {}",
             source, i, problem.cluster->device(sync.server).name,
             problem.graph->tensor(sync.parameter).name, held.empty() ? "no device" : held);
  }
}

// Each names an instance that runs, once.
void check_priorities(const cost::Problem& problem, const Strategy& strategy,
                      std::string_view source) {
  const bool follows = strategy.order == OrderPolicy::kPriority;
  VALIDATE(follows || strategy.priorities.empty(),
           "{}: priorities: {} given, but the order is {}; expected order priority, or none",
           source, strategy.priorities.size(), order_policy_name(strategy.order));
  VALIDATE(!follows || !strategy.priorities.empty(),
           "{}: order: priority, but no priorities are given; expected those of the ops, or order "
           "rank, rank-reserve or fifo",
           source);
  if (!follows) return;
  const graph::ModelGraph& graph = *problem.graph;
  const Layout layout = lay_out(problem, strategy);
  std::set<std::pair<OpId, std::uint32_t>> seen;
  for (std::size_t i = 0; i < strategy.priorities.size(); ++i) {
    const OpPriority& one = strategy.priorities[i];
    VALIDATE(one.op.value() < graph.op_count(), "{}: priorities[{}]: op {}, the graph has {} ops",
             source, i, one.op.value(), graph.op_count());
    const std::string& name = graph.op(one.op).name;
    const LayoutId at = task_layout(problem, layout, one.op);
    VALIDATE(at.valid(), "{}: priorities[{}]: op '{}' has no task of its own in the plan", source,
             i, name);
    VALIDATE(one.instance < layout.slices[at].size(),
             "{}: priorities[{}]: instance {} of op '{}', which has {}", source, i, one.instance,
             name, layout.slices[at].size());
    VALIDATE(seen.insert({one.op, one.instance}).second,
             "{}: priorities[{}]: instance {} of op '{}' stands twice, expected one entry", source,
             i, one.instance, name);
  }
}

}  // namespace

void check_strategy(const cost::Problem& problem, const Strategy& strategy,
                    std::string_view source) {
  const std::size_t devices = problem.cluster->device_count();
  const bool own_units = !strategy.unit_of_op.empty();
  if (own_units) {
    VALIDATE(strategy.unit_of_op.size() == problem.graph->op_count(),
             "{}: unit_of_op has {} entries, the graph has {} ops", source,
             strategy.unit_of_op.size(), problem.graph->op_count());
    for (UnitId unit : strategy.unit_of_op) {
      VALIDATE(unit.value() < strategy.units.size(), "{}: unit_of_op names unit {}, there are {}",
               source, unit.value(), strategy.units.size());
    }
  } else {
    VALIDATE(strategy.units.size() == problem.grouping.count(),
             "{}: decisions for {} units, the problem has {} groups", source, strategy.units.size(),
             problem.grouping.count());
  }
  for (std::size_t i = 0; i < strategy.units.size(); ++i) {
    const UnitDecision& decision = strategy.units[UnitId(i)];
    VALIDATE(!decision.replicas.empty(), "{}: units[{}]: no replica, give at least one device",
             source, i);
    for (const Replica& replica : decision.replicas) {
      VALIDATE(replica.device.value() < devices, "{}: units[{}]: device {}, the cluster has {}",
               source, i, replica.device.value(), devices);
      VALIDATE(std::isfinite(replica.weight) && replica.weight > 0 && replica.weight <= 1e9,
               "{}: units[{}]: weight {}, expected a positive number up to 1e9", source, i,
               replica.weight);
    }
  }
  VALIDATE(strategy.splits.empty(), "{}: splits: splits other than of the batch are not supported",
           source);
  VALIDATE(strategy.pipeline.micro_batches == 1,
           "{}: pipeline: {} micro-batches, only 1 is supported", source,
           strategy.pipeline.micro_batches);
  VALIDATE(strategy.bucket_bytes >= 0, "{}: bucket_bytes: {}, expected 0 or more", source,
           strategy.bucket_bytes);
  check_sync(problem, strategy, source);
  check_servers(problem, strategy, source);
  check_priorities(problem, strategy, source);
}

std::vector<Slice> slice_batch(const std::vector<Replica>& replicas, std::int64_t batch) {
  double total = 0;
  for (const Replica& replica : replicas) total += replica.weight;
  // Largest remainder over the replicas as listed, then merging by device.
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
  std::vector<Slice> merged;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    auto same = std::find_if(merged.begin(), merged.end(),
                             [&](const Slice& s) { return s.device == replicas[i].device; });
    if (same == merged.end()) {
      merged.push_back({replicas[i].device, 0, sizes[i]});
    } else {
      same->end += sizes[i];
    }
  }
  std::vector<Slice> slices;
  std::int64_t at = 0;
  for (const Slice& slice : merged) {
    if (slice.end == 0) continue;
    slices.push_back({slice.device, at, at + slice.end});
    at += slice.end;
  }
  return slices;
}

}  // namespace heterog::compiler

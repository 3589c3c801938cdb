// Refuses what does not fit: units, devices, weights, servers, micro-batches, priorities.
#include "decide/check_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "decide/frozen.h"
#include "decide/layout.h"
#include "decide/micro_batches.h"
#include "decide/recomputation.h"

namespace heterog::decide {
namespace {

void check_several_servers(const cost::Problem& problem, const ParameterSync& sync,
                           const std::string& where) {
  if (sync.servers.empty()) return;
  VALIDATE(sync.method == SyncMethod::kParameterServer && !sync.server.valid(),
           "{} has servers, and {}; expected method ps, and no server beside them", where,
           sync.server.valid() ? fmt::format("server {}", problem.cluster->device(sync.server).name)
                               : fmt::format("method {}", sync_method_name(sync.method)));
  std::set<DeviceId> seen;
  for (const Replica& one : sync.servers) {
    VALIDATE(one.device.value() < problem.cluster->place_count(),
             "{}: server {}, the cluster has {} devices and hosts that serve", where,
             one.device.value(), problem.cluster->place_count());
    const std::string& name = problem.cluster->device(one.device).name;
    VALIDATE(seen.insert(one.device).second, "{}: server {} stands twice, expected one weight",
             where, name);
    VALIDATE(std::isfinite(one.weight) && one.weight > 0 && one.weight <= 1e9,
             "{}: weight {} of server {}, expected a positive number up to 1e9", where, one.weight,
             name);
  }
}

// A frozen weight may stand among the buffers (decide/frozen.h).
bool is_frozen_buffer(const cost::Problem& problem, const ParameterSync& sync) {
  return sync.method == SyncMethod::kGathered &&
         std::ranges::binary_search(frozen_tensors(problem), sync.parameter);
}

// Each entry by itself, and that none contradicts another.
void check_sync(const cost::Problem& problem, const Strategy& strategy, std::string_view source) {
  const std::size_t places = problem.cluster->place_count();
  std::set<TensorId> seen;
  for (std::size_t i = 0; i < strategy.sync.size(); ++i) {
    const ParameterSync& sync = strategy.sync[i];
    VALIDATE(sync.parameter.value() < problem.graph->tensor_count() &&
                 (problem.graph->tensor(sync.parameter).role == graph::TensorRole::kParameter ||
                  is_frozen_buffer(problem, sync)),
             "{}: sync[{}]: tensor {} is not a parameter, nor a frozen buffer to gather", source, i,
             sync.parameter.value());
    const std::string& name = problem.graph->tensor(sync.parameter).name;
    VALIDATE(seen.insert(sync.parameter).second,
             "{}: sync[{}]: parameter '{}' stands twice, expected one entry", source, i, name);
    VALIDATE(!sync.server.valid() || sync.server.value() < places,
             "{}: sync[{}]: server {}, the cluster has {} devices and hosts that serve", source, i,
             sync.server.value(), places);
    VALIDATE(
        !sync.server.valid() || sync.method == SyncMethod::kParameterServer,
        "{}: sync[{}]: parameter '{}' has a server, {}, and method {}; expected method ps, or no "
        "server",
        source, i, name, problem.cluster->device(sync.server).name, sync_method_name(sync.method));
    check_several_servers(problem, sync,
                          fmt::format("{}: sync[{}]: parameter '{}'", source, i, name));
    VALIDATE(sync.group <= kMostGroups, "{}: sync[{}]: group {}, expected 1 to {}", source, i,
             sync.group, kMostGroups);
    VALIDATE(sync.group == 0 || sync.method != SyncMethod::kParameterServer,
             "{}: sync[{}]: parameter '{}' has group {}, and method ps; expected a method of "
             "collectives, all-reduce or sharded, or no group",
             source, i, name, sync.group);
  }
}

// Gradients of a group share a collective: they are aggregated alike, on the same devices.
void check_groups(const cost::Problem& problem, const Strategy& strategy, std::string_view source) {
  if (std::ranges::all_of(strategy.sync, [](const auto& sync) { return sync.group == 0; })) return;
  const Layout layout = lay_out(problem, strategy);
  std::map<std::uint32_t, const ParameterSync*> first_of;
  for (std::size_t i = 0; i < strategy.sync.size(); ++i) {
    const ParameterSync& sync = strategy.sync[i];
    if (sync.group == 0 || layout.home_of[sync.parameter] == Layout::kNoHome) continue;
    const auto [at, is_new] = first_of.try_emplace(sync.group, &sync);
    if (is_new) continue;
    const ParameterSync& first = *at->second;
    const std::string& name = problem.graph->tensor(sync.parameter).name;
    const std::string& first_name = problem.graph->tensor(first.parameter).name;
    VALIDATE(sync.method == first.method,
             "{}: sync[{}]: group {}: parameter '{}' has method {}, and '{}' {}; expected one "
             "method a group",
             source, i, sync.group, name, sync_method_name(sync.method), first_name,
             sync_method_name(first.method));
    VALIDATE(std::ranges::equal(layout.home(sync.parameter).devices(),
                                layout.home(first.parameter).devices()),
             "{}: sync[{}]: group {}: parameter '{}' is on other devices than '{}'; expected the "
             "same of all in a group",
             source, i, sync.group, name, first_name);
  }
}

void check_row_weights(const cost::Problem& problem, const Strategy& strategy,
                       std::string_view source) {
  const std::size_t devices = problem.cluster->device_count();
  VALIDATE(strategy.row_weights.empty() || strategy.row_weights.size() == devices,
           "{}: row_weights: of {} devices, the cluster has {}", source,
           strategy.row_weights.size(), devices);
  for (std::size_t i = 0; i < strategy.row_weights.size(); ++i) {
    const double weight = strategy.row_weights[DeviceId(i)];
    VALIDATE(std::isfinite(weight) && weight > 0 && weight <= 1e9,
             "{}: row_weights: weight {} of {}, expected a positive number up to 1e9", source,
             weight, problem.cluster->device(DeviceId(i)).name);
  }
}

// The devices that hold a parameter; not the host by which its unit may have it served.
std::vector<DeviceId> holders(const cost::Problem& problem, const Layout& layout,
                              TensorId parameter) {
  std::vector<DeviceId> devices;
  if (layout.home_of[parameter] == Layout::kNoHome) return devices;
  for (DeviceId replica : layout.home(parameter).replicas) {
    if (!problem.cluster->is_host(replica)) devices.push_back(replica);
  }
  return devices;
}

void check_servers(const cost::Problem& problem, const Strategy& strategy,
                   std::string_view source) {
  const auto names_server = [](const ParameterSync& sync) {
    return sync.server.valid() || !sync.servers.empty();
  };
  if (std::none_of(strategy.sync.begin(), strategy.sync.end(), names_server)) return;
  Strategy without = strategy;
  without.sync.clear();
  const Layout layout = lay_out(problem, without);
  for (std::size_t i = 0; i < strategy.sync.size(); ++i) {
    const ParameterSync& sync = strategy.sync[i];
    std::vector<DeviceId> servers;
    if (sync.server.valid()) servers.push_back(sync.server);
    for (const Replica& one : sync.servers) servers.push_back(one.device);
    for (DeviceId server : servers) {
      if (may_serve(problem, layout, sync.parameter, server)) continue;
      std::string held;
      for (DeviceId device : holders(problem, layout, sync.parameter)) {
        held += (held.empty() ? "" : ", ") + problem.cluster->device(device).name;
      }
      throw Error(
          ErrorKind::kInput,
          fmt::format("{}: sync[{}]: server {} has no replica of parameter '{}', which is on {}",
                      source, i, problem.cluster->device(server).name,
                      problem.graph->tensor(sync.parameter).name,
                      held.empty() ? "no device" : held));
    }
  }
}

// Each names an instance that runs, once.
void check_priorities(const cost::Problem& problem, const Strategy& strategy,
                      std::string_view source) {
  const bool follows = strategy.order == OrderPolicy::kPriority;
  VALIDATE(follows || strategy.priorities.empty(),
           "{}: priorities: {} given, but the order is {}; expected order priority, or none",
           source, strategy.priorities.size(), order_policy_name(strategy.order));
  const bool by_pattern = strategy.pattern != Pattern::kNone;
  VALIDATE(!follows || by_pattern || !strategy.priorities.empty(),
           "{}: order: priority, but no priorities are given; expected those of the ops, a pattern "
           "of micro-batches, or order {}",
           source, kPlainOrders);
  VALIDATE(!by_pattern || strategy.priorities.empty(),
           "{}: priorities: {} given beside pattern {}; expected one of both", source,
           strategy.priorities.size(), pattern_name(strategy.pattern));
  VALIDATE(strategy.order_rounds >= 0 && strategy.order_rounds <= kMostOrderRounds,
           "{}: order_rounds: {}, expected 0 to {}", source, strategy.order_rounds,
           kMostOrderRounds);
  VALIDATE(!strategy.strict || strategy.order_rounds == 0,
           "{}: order_rounds: {} of strict turns; expected 0, or strict false", source,
           strategy.order_rounds);
  if (strategy.priorities.empty()) return;
  const graph::ModelGraph& graph = *problem.graph;
  const Layout layout = lay_out(problem, strategy);
  const Recomputation recomputation = find_recomputation(problem, strategy);
  IdVector<OpId, std::vector<std::uint8_t>> seen(graph.op_count());  // [instance]
  for (std::size_t i = 0; i < strategy.priorities.size(); ++i) {
    const OpPriority& one = strategy.priorities[i];
    VALIDATE(one.op.value() < graph.op_count(), "{}: priorities[{}]: op {}, the graph has {} ops",
             source, i, one.op.value(), graph.op_count());
    const std::string& name = graph.op(one.op).name;
    const LayoutId at = task_layout(problem, layout, one.op);
    VALIDATE(at.valid(), "{}: priorities[{}]: op '{}' has no task of its own in the plan", source,
             i, name);
    // What runs again has its instances behind the others.
    const bool twice = recomputation.any && recomputation.runs_again[one.op] != 0;
    const std::size_t instances = layout.slices[at].size() * (twice ? 2 : 1);
    VALIDATE(one.instance < instances, "{}: priorities[{}]: instance {} of op '{}', which has {}",
             source, i, one.instance, name, instances);
    seen[one.op].resize(instances);
    VALIDATE(!std::exchange(seen[one.op][one.instance], 1),
             "{}: priorities[{}]: instance {} of op '{}' stands twice, expected one entry", source,
             i, one.instance, name);
  }
}

void check_micro_batches(const cost::Problem& problem, const Strategy& strategy,
                         std::string_view source) {
  VALIDATE(strategy.micro_batches >= 1 && strategy.micro_batches <= problem.batch,
           "{}: micro_batches: {} of a batch of {}; expected 1 to {}", source,
           strategy.micro_batches, problem.batch, problem.batch);
  check_instances(problem, most_instances(strategy, problem.batch),
                  fmt::format("{}: micro_batches", source));
  const bool by_pattern = strategy.pattern != Pattern::kNone;
  VALIDATE(!by_pattern || strategy.micro_batches > 1,
           "{}: pattern: {} of one micro-batch; expected several, or pattern none", source,
           pattern_name(strategy.pattern));
  VALIDATE(by_pattern || !strategy.strict,
           "{}: strict: true without a pattern of turns; expected a pattern, or false", source);
  VALIDATE(!by_pattern || strategy.strict == (strategy.order != OrderPolicy::kPriority),
           "{}: order: {} with pattern {}, {}; expected order {}", source,
           order_policy_name(strategy.order), pattern_name(strategy.pattern),
           strategy.strict ? "strict" : "not strict", strategy.strict ? kPlainOrders : "priority");
  VALIDATE(strategy.pipeline_of.empty() ||
               strategy.pipeline_of.size() == problem.cluster->device_count(),
           "{}: pipelines: of {} devices, the cluster has {}", source, strategy.pipeline_of.size(),
           problem.cluster->device_count());
}

}  // namespace

bool may_serve(const cost::Problem& problem, const Layout& layout, TensorId parameter,
               DeviceId server) {
  const std::vector<DeviceId> devices = holders(problem, layout, parameter);
  return std::ranges::find(devices, server) != devices.end() ||
         (problem.cluster->is_host(server) && devices.size() > 1);
}

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
    // Neighbours often decide alike.
    if (i > 0 && decision.replicas == strategy.units[UnitId(i - 1)].replicas) continue;
    for (const Replica& replica : decision.replicas) {
      VALIDATE(replica.device.value() < problem.cluster->place_count(),
               "{}: units[{}]: device {}, the cluster has {}", source, i, replica.device.value(),
               devices);
      VALIDATE(replica.device.value() < devices,
               "{}: units[{}]: {} is a host that serves parameters and takes no samples; expected "
               "one of the {} devices",
               source, i, problem.cluster->device(replica.device).name, devices);
      VALIDATE(std::isfinite(replica.weight) && replica.weight > 0 && replica.weight <= 1e9,
               "{}: units[{}]: weight {}, expected a positive number up to 1e9", source, i,
               replica.weight);
    }
  }
  check_micro_batches(problem, strategy, source);
  VALIDATE(strategy.bucket_bytes >= 0, "{}: bucket_bytes: {}, expected 0 or more", source,
           strategy.bucket_bytes);
  check_row_weights(problem, strategy, source);
  check_sync(problem, strategy, source);
  check_servers(problem, strategy, source);
  check_groups(problem, strategy, source);
  check_priorities(problem, strategy, source);
}

}  // namespace heterog::decide

// Looks at who reads a frozen tensor, and where.
#include "decide/frozen.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace heterog::decide {
namespace {

using graph::Phase;

// What updates read, and what an op reads on its first slice alone: nothing is gathered for these.
std::set<TensorId> read_otherwise(const cost::Problem& problem) {
  std::set<TensorId> found;
  for (OpId op : problem.folded->ops) {
    const bool updates = problem.graph->op(op).phase == Phase::kUpdate;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (updates || read.use == graph::OperandUse::kOnce) found.insert(read.base);
    }
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    for (const graph::Read& read : chain.reads) found.insert(read.base);
  }
  return found;
}

// How many instances each device has.
std::map<DeviceId, std::size_t> instances(std::span<const Slice> slices) {
  std::map<DeviceId, std::size_t> count;
  for (const Slice& slice : slices) ++count[slice.device];
  return count;
}

// Forward and backward ops that read each tensor that no op makes, ascending.
IdVector<TensorId, std::vector<OpId>> readers_of_outside(const cost::Problem& problem) {
  IdVector<TensorId, std::vector<OpId>> readers(problem.graph->tensor_count());
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid()) continue;
      std::vector<OpId>& known = readers[read.base];
      if (known.empty() || known.back() != op) known.push_back(op);
    }
  }
  return readers;
}

std::vector<TensorId> frozen_among(const cost::Problem& problem,
                                   const IdVector<TensorId, std::vector<OpId>>& readers) {
  std::set<TensorId> updated;
  for (const graph::UpdateChain& chain : problem.folded->chains) updated.insert(chain.parameter);
  std::vector<TensorId> frozen;
  for (TensorId tensor : problem.graph->tensor_ids()) {
    const graph::Tensor& info = problem.graph->tensor(tensor);
    const bool stays =
        info.role == graph::TensorRole::kParameter || info.role == graph::TensorRole::kBuffer;
    if (stays && !info.has_batch && !problem.folded->updater[tensor].valid() &&
        !updated.contains(tensor) && !readers[tensor].empty()) {
      frozen.push_back(tensor);
    }
  }
  return frozen;
}

bool asks_to_gather(const Strategy& strategy) {
  const auto by_unit = [](const UnitDecision& unit) { return unit.sync == SyncMethod::kGathered; };
  const auto by_itself = [](const ParameterSync& sync) {
    return sync.method == SyncMethod::kGathered;
  };
  return std::ranges::any_of(strategy.units, by_unit) ||
         std::ranges::any_of(strategy.sync, by_itself);
}

std::vector<TensorId> to_gather(const cost::Problem& problem, const Strategy& strategy,
                                const IdVector<TensorId, std::vector<OpId>>& readers) {
  std::map<TensorId, SyncMethod> by_itself;
  for (const ParameterSync& sync : strategy.sync) by_itself[sync.parameter] = sync.method;
  std::vector<TensorId> found;
  for (TensorId tensor : frozen_among(problem, readers)) {
    const auto own = by_itself.find(tensor);
    const SyncMethod method =
        own != by_itself.end()
            ? own->second
            : strategy.units[unit_of(problem, strategy, readers[tensor].front())].sync;
    if (method == SyncMethod::kGathered) found.push_back(tensor);
  }
  return found;
}

}  // namespace

std::vector<TensorId> frozen_tensors(const cost::Problem& problem) {
  return frozen_among(problem, readers_of_outside(problem));
}

std::vector<TensorId> frozen_to_gather(const cost::Problem& problem, const Strategy& strategy) {
  if (!asks_to_gather(strategy)) return {};
  return to_gather(problem, strategy, readers_of_outside(problem));
}

void settle_frozen(const cost::Problem& problem, const Strategy& strategy, Layout& layout) {
  if (!asks_to_gather(strategy)) return;
  const IdVector<TensorId, std::vector<OpId>> readers = readers_of_outside(problem);
  const std::vector<TensorId> asked = to_gather(problem, strategy, readers);
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == Layout::kNoHome) continue;
    ParameterHome& home = layout.homes[layout.home_of[parameter]];
    if (home.method == SyncMethod::kGathered && !std::ranges::binary_search(asked, parameter)) {
      home.method = SyncMethod::kSharded;
    }
  }
  const std::set<TensorId> otherwise = read_otherwise(problem);
  IdVector<LayoutId, std::vector<DeviceId>> known(layout.slices.size());  // empty: not yet
  const auto devices_of = [&](OpId reader) -> const std::vector<DeviceId>& {
    std::vector<DeviceId>& devices = known[layout.of_op[reader]];
    if (!devices.empty()) return devices;
    for (const auto& [device, count] : instances(layout.op_slices(reader))) {
      devices.push_back(device);
    }
    return devices;
  };
  for (TensorId tensor : asked) {
    const auto shape = problem.graph->shape(tensor);
    const std::vector<DeviceId> devices = devices_of(readers[tensor].front());
    if (devices.size() < 2 || shape.empty() || otherwise.contains(tensor)) continue;
    const auto is_alike = [&](OpId reader) { return devices_of(reader) == devices; };
    if (!std::ranges::all_of(readers[tensor], is_alike)) continue;
    std::vector<std::int64_t> rows = deal_rows(shape[0].c, devices, strategy.row_weights);
    const auto is_empty = [](std::int64_t begin, std::int64_t end) { return begin == end; };
    if (rows.size() <= devices.size() || std::ranges::adjacent_find(rows, is_empty) != rows.end()) {
      continue;
    }
    std::uint32_t& at = layout.home_of[tensor];
    if (at == Layout::kNoHome) {
      at = static_cast<std::uint32_t>(layout.homes.size());
      layout.homes.push_back({.replicas = devices});
    }
    layout.homes[at].method = SyncMethod::kGathered;
    layout.homes[at].rows = std::move(rows);
    layout.gathered.push_back(tensor);
  }
}

std::vector<PassUse> uses_of_frozen(const cost::Problem& problem, const Layout& layout,
                                    const Recomputation& recomputation) {
  if (layout.gathered.empty()) return {};
  std::vector<PassUse> forward, backward;
  std::map<std::pair<Pass, TensorId>, std::size_t> known;
  const auto note = [&](Pass pass, OpId op) {
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid() || layout.home_of[read.base] == Layout::kNoHome) continue;
      if (!layout.home(read.base).gathered()) continue;
      std::vector<PassUse>& uses = pass == Pass::kForward ? forward : backward;
      const auto [at, is_new] = known.try_emplace({pass, read.base}, uses.size());
      if (is_new) uses.push_back({pass, read.base, 0});
      std::size_t& rounds = uses[at->second].rounds;
      for (const auto& [device, count] : instances(layout.op_slices(op))) {
        rounds = std::max(rounds, count);
      }
    }
  };
  for (OpId op : problem.folded->ops) {
    const Phase phase = problem.graph->op(op).phase;
    if (phase == Phase::kUpdate) continue;
    const UnitId unit = recomputation.any ? recomputation.serves[op] : UnitId();
    if (unit.valid() && recomputation.first[unit] == op) {
      for (OpId again : recomputation.again[unit]) note(Pass::kBackward, again);
    }
    note(phase == Phase::kBackward ? Pass::kBackward : Pass::kForward, op);
  }
  forward.insert(forward.end(), backward.begin(), backward.end());
  return forward;
}

}  // namespace heterog::decide

// Decides the slices of every op and the home of every parameter.
#include "decide/layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "decide/frozen.h"
#include "decide/micro_batches.h"
#include "decide/servers.h"
#include "graph/folded.h"
#include "graph/lookups.h"
#include "graph/row_updates.h"

namespace heterog::decide {
namespace {

using graph::OperandUse;
using graph::Phase;

// Hands out layout ids, one per distinct list of slices.
class LayoutPool {
 public:
  explicit LayoutPool(Layout& layout) : layout_(layout) {}

  LayoutId intern(std::vector<Slice> slices) {
    for (LayoutId id : id_range<LayoutId>(layout_.slices.size())) {
      if (layout_.slices[id] == slices) return id;
    }
    std::vector<Slice> merged = merge_by_device(slices);
    const LayoutId id = layout_.slices.push_back(std::move(slices));
    layout_.merged.push_back(id);
    if (merged.size() < layout_.slices[id].size()) {
      const LayoutId of_devices = intern(std::move(merged));
      layout_.merged[id] = of_devices;
    }
    return id;
  }

 private:
  Layout& layout_;
};

// The device with the largest share; ties: the lowest id (decision 1).
DeviceId primary_device(const std::vector<Slice>& slices) {
  const Slice* best = &slices.front();
  for (const Slice& slice : slices) {
    if (slice.size() > best->size() ||
        (slice.size() == best->size() && slice.device < best->device)) {
      best = &slice;
    }
  }
  return best->device;
}

struct UnitLayout {
  LayoutId sliced;
  LayoutId whole;
};

IdVector<UnitId, UnitLayout> unit_layouts(const Strategy& strategy, std::int64_t batch,
                                          LayoutPool& pool) {
  IdVector<UnitId, UnitLayout> units(strategy.units.size());
  for (UnitId unit : id_range<UnitId>(strategy.units.size())) {
    // Neighbouring units often decide alike: reuse the layout of the one before.
    if (unit.value() > 0) {
      const UnitId before(unit.value() - 1);
      if (strategy.units[unit].replicas == strategy.units[before].replicas &&
          strategy.units[unit].in_turn == strategy.units[before].in_turn) {
        units[unit] = units[before];
        continue;
      }
    }
    std::vector<Slice> slices = slices_of(strategy, strategy.units[unit], batch);
    const DeviceId primary = primary_device(merge_by_device(slices));
    units[unit].sliced = pool.intern(std::move(slices));
    units[unit].whole = pool.intern({{primary, 0, batch}});
  }
  return units;
}

// The slices that hold the operand are the only ones that can read it.
bool bound_to_producer(OperandUse use) {
  return use == OperandUse::kLocal || use == OperandUse::kPartial;
}

// The layout of an op whose slices, of its unit or of what it reads, are those of `sliced`.
LayoutId instances_of(const cost::Problem& problem, const Layout& layout, OpId op,
                      LayoutId sliced) {
  const LayoutId merged = layout.merged[sliced];
  if (merged == sliced || !runs_once_per_device(problem, op)) return sliced;
  for (const graph::Read& read : problem.folded->reads[op]) {
    VALIDATE(!read.producer.valid() || read.use != OperandUse::kLocal ||
                 layout.of_op[read.producer] == merged,
             "{}: op '{}' runs once per device, but reads '{}', of which each of several instances "
             "on one device has its own; expected one instance per device in the unit of op '{}'",
             problem.graph->name(), problem.graph->op(op).name,
             problem.graph->tensor(read.tensor).name, problem.graph->op(read.producer).name);
  }
  return merged;
}

void lay_out_forward_and_backward(const cost::Problem& problem,
                                  const IdVector<OpId, UnitId>& unit_of_op,
                                  const IdVector<UnitId, UnitLayout>& units, Layout& layout) {
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    const UnitLayout& unit = units[unit_of_op[op]];
    LayoutId chosen = problem.splits->sliceable[op] ? unit.sliced : unit.whole;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid() && bound_to_producer(read.use)) {
        chosen = layout.of_op[read.producer];
        break;
      }
    }
    layout.of_op[op] = instances_of(problem, layout, op, chosen);
  }
}

// Who reads a parameter, ascending. Most are read on the same slices: the devices of each list are
// sorted once.
class ReaderDevices {
 public:
  ReaderDevices(const cost::Problem& problem, const Layout& layout)
      : problem_(problem), layout_(layout), devices_(layout.slices.size()) {}

  std::vector<DeviceId> of(TensorId parameter) {
    layouts_.clear();
    for (OpId op : problem_.folded->parameter_readers[parameter]) {
      const LayoutId one = layout_.of_op[op];
      if (std::ranges::find(layouts_, one) == layouts_.end()) layouts_.push_back(one);
    }
    if (layouts_.size() == 1) return of_layout(layouts_.front());
    std::vector<DeviceId> devices;
    for (LayoutId one : layouts_) {
      const std::vector<DeviceId>& more = of_layout(one);
      devices.insert(devices.end(), more.begin(), more.end());
    }
    sort_and_unique(devices);
    return devices;
  }

 private:
  static void sort_and_unique(std::vector<DeviceId>& devices) {
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  }
  const std::vector<DeviceId>& of_layout(LayoutId layout) {
    std::vector<DeviceId>& devices = devices_[layout];
    if (!devices.empty()) return devices;
    for (const Slice& slice : layout_.slices[layout]) devices.push_back(slice.device);
    sort_and_unique(devices);
    return devices;
  }

  const cost::Problem& problem_;
  const Layout& layout_;
  IdVector<LayoutId, std::vector<DeviceId>> devices_;  // empty: not yet
  std::vector<LayoutId> layouts_;                      // kept for its memory
};

// Different slices make the addends of a tied parameter's gradient.
bool addends_come_apart(const cost::Problem& problem, const Layout& layout,
                        const graph::TiedSum& sum) {
  const auto reads = problem.folded->reads[sum.op];
  const LayoutId first = layout.of_op[reads.front().producer];
  return std::ranges::any_of(reads, [&](const graph::Read& read) {
    return layout.of_op[read.producer] != first || layout.sums_at_its_update(read.producer);
  });
}

// Whether servers of rows can be sent rows of the gradient: nobody but the update reads it, all who
// hold the parameter, and nobody else, have an addend, and it does not travel as the rows of
// look-ups anyway.
bool travels_in_parts(const cost::Problem& problem, const Layout& layout,
                      const graph::UpdateChain& chain, std::span<const DeviceId> holders) {
  bool any = false;
  for (const graph::Read& read : chain.reads) {
    if (read.rule.kind != graph::SplitKind::kSum && read.rule.kind != graph::SplitKind::kMean) {
      continue;
    }
    if (!read.producer.valid() || problem.graph->op(read.producer).phase == Phase::kUpdate ||
        !graph::form_for_update(*problem.graph, chain, read.base).valid()) {
      return false;
    }
    std::vector<DeviceId> devices;
    for (const Slice& slice : layout.op_slices(read.producer)) {
      devices.push_back(slice.device);
      const auto rows = graph::lookups(*problem.graph, read.base, slice.size());
      if (rows &&
          rows->index_bytes + rows->row_bytes < problem.graph->bytes(read.base, problem.batch)) {
        return false;
      }
    }
    std::ranges::sort(devices);
    devices.erase(std::ranges::unique(devices).begin(), devices.end());
    if (!std::ranges::equal(devices, holders)) return false;
    any = true;
  }
  // The sum of a tied parameter's addends may have to wait until it is updated. It may be a sum of
  // sums, as of a recurrent weight.
  return any && std::ranges::none_of(problem.folded->tied_sums, [&](const graph::TiedSum& sum) {
           return sum.parameter == chain.parameter && addends_come_apart(problem, layout, sum);
         });
}

// The rows of several servers, some of which may be hosts.
void deal_to_servers(const cost::Problem& problem, const std::vector<Replica>& servers,
                     std::int64_t rows, ParameterHome& home) {
  std::vector<DeviceId> owners;
  IdVector<DeviceId, double> weights(problem.cluster->place_count(), 1.0);
  for (const Replica& server : servers) {
    owners.push_back(server.device);
    weights[server.device] = server.weight;
  }
  std::ranges::sort(owners);
  for (DeviceId owner : owners) {
    if (!problem.cluster->is_host(owner)) continue;
    home.replicas.push_back(owner);
    ++home.hosts;
  }
  const std::vector<std::int64_t> cuts = deal_rows(rows, owners, weights);
  home.rows = {0};
  for (DeviceId replica : home.replicas) {
    const auto at = std::ranges::lower_bound(owners, replica) - owners.begin();
    const bool owns = at < std::ssize(owners) && owners[at] == replica;
    home.rows.push_back(home.rows.back() + (owns ? cuts[at + 1] - cuts[at] : 0));
  }
}

// The rows of each parameter that is sharded or has several servers, and of its state. One whose
// update does not go by rows, or that one device has, gets none, and is all-reduced or has one
// server.
void deal_by_rows(const cost::Problem& problem, const Strategy& strategy, Layout& layout) {
  std::map<TensorId, const ParameterSync*> several;
  for (const ParameterSync& sync : strategy.sync) {
    if (!sync.servers.empty()) several[sync.parameter] = &sync;
  }
  // Of the replicas of the latest sharded parameter: where so many rows are cut.
  std::vector<DeviceId> dealt_to;
  std::map<std::int64_t, std::vector<std::int64_t>> dealt;
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    const std::uint32_t at = layout.home_of[chain.parameter];
    if (at == Layout::kNoHome) continue;
    ParameterHome& home = layout.homes[at];
    if (home.replicas.size() == 1 || !chain.by_rows) continue;
    const auto sync = several.find(chain.parameter);
    const std::int64_t rows = problem.graph->shape(chain.parameter)[0].c;
    if (home.method == SyncMethod::kSharded) {
      if (dealt_to != home.replicas) {
        dealt_to = home.replicas;
        dealt.clear();
      }
      const auto [cuts, is_new] = dealt.try_emplace(rows);
      if (is_new) cuts->second = deal_rows(rows, home.replicas, strategy.row_weights);
      home.rows = cuts->second;
    } else if (sync != several.end() && travels_in_parts(problem, layout, chain, home.replicas)) {
      deal_to_servers(problem, sync->second->servers, rows, home);
    } else {
      continue;
    }
    for (TensorId state : chain.row_state) {
      if (layout.row_home_of.empty()) {
        layout.row_home_of.assign(problem.graph->tensor_count(), Layout::kNoHome);
      }
      layout.row_home_of[state] = at;
    }
  }
}

void place_parameters(const cost::Problem& problem, const Strategy& strategy,
                      const IdVector<OpId, UnitId>& unit_of_op,
                      const IdVector<UnitId, UnitLayout>& units, Layout& layout) {
  const graph::ModelGraph& graph = *problem.graph;
  layout.home_of.assign(graph.tensor_count(), Layout::kNoHome);
  ReaderDevices readers_of(problem, layout);
  std::vector<Bytes> bytes;
  for (TensorId parameter : graph.parameters()) {
    ParameterHome home;
    const OpId updater = problem.folded->updater[parameter];
    const auto readers = problem.folded->parameter_readers[parameter];
    if (!updater.valid() && readers.empty()) continue;  // nobody looks at it
    const UnitId unit = unit_of_op[updater.valid() ? updater : readers.front()];
    home.replicas = readers_of.of(parameter);
    if (home.replicas.empty()) {
      home.replicas = {layout.slices[units[unit].whole].front().device};
    }
    home.method = strategy.units[unit].sync;
    if (home.replicas.size() == 1) home.server = home.replicas.front();
    layout.home_of[parameter] = static_cast<std::uint32_t>(layout.homes.size());
    layout.homes.push_back(std::move(home));
    bytes.push_back(graph.bytes(parameter, 1));
  }
  for (const ParameterSync& sync : strategy.sync) {
    if (layout.home_of[sync.parameter] == Layout::kNoHome) continue;
    ParameterHome& home = layout.homes[layout.home_of[sync.parameter]];
    home.method = sync.method;
    home.group = sync.group;
    if (home.replicas.size() > 1) home.server = sync.server;
  }
  settle_frozen(problem, strategy, layout);
  deal_by_rows(problem, strategy, layout);
  choose_servers(problem, layout.homes, bytes);
}

// Updates run on the parameter's server, on every replica, or on those that have rows of it. An
// update op that belongs to no single parameter runs on its unit's devices, whole on each.
void lay_out_update(const cost::Problem& problem, const IdVector<OpId, UnitId>& unit_of_op,
                    const IdVector<UnitId, UnitLayout>& units, Layout& layout, LayoutPool& pool) {
  const auto whole_on = [&](std::span<const DeviceId> devices) {
    std::vector<Slice> slices;
    for (DeviceId device : devices) slices.push_back({device, 0, problem.batch});
    return pool.intern(std::move(slices));
  };
  std::vector<DeviceId> owners, same_owners;  // of this home, and of the latest of several
  LayoutId same;
  for (ParameterHome& home : layout.homes) {
    if (home.server.valid()) {
      home.update = whole_on(std::span(&home.server, 1));
      continue;
    }
    owners.clear();
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      if (!home.by_rows() || home.rows_of(i) > 0) owners.push_back(home.replicas[i]);
    }
    if (owners != same_owners || !same.valid()) {
      same_owners = owners;
      same = whole_on(owners);
    }
    home.update = same;
  }
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kUpdate) continue;
    const TensorId parameter = problem.folded->home[op];
    if (parameter.valid() && layout.home_of[parameter] != Layout::kNoHome) {
      layout.of_op[op] = layout.home(parameter).update;
    } else {
      std::vector<DeviceId> devices;
      for (const Slice& slice : layout.slices[layout.merged[units[unit_of_op[op]].sliced]]) {
        devices.push_back(slice.device);
      }
      layout.of_op[op] = whole_on(devices);
    }
  }
}

// The last: where updates run is known. A host has no costs of ops that are no updates.
void lay_out_tied_sums(const cost::Problem& problem, Layout& layout) {
  for (const graph::TiedSum& sum : problem.folded->tied_sums) {
    if (layout.home_of[sum.parameter] == Layout::kNoHome) continue;
    const ParameterHome& home = layout.home(sum.parameter);
    if (!addends_come_apart(problem, layout, sum) || home.hosts > 0) continue;
    layout.of_op[sum.op] = home.update;
    layout.sums_at_update.push_back(sum.op);
  }
}

}  // namespace

bool runs_once_per_device(const cost::Problem& problem, OpId op) {
  bool same = true;
  for (TensorId out : problem.graph->outputs(op)) {
    if (!out.valid()) continue;
    if (problem.graph->tensor(out).replaces.valid()) return true;
    same = same && problem.splits->rules[out].kind == graph::SplitKind::kSame;
  }
  return same;
}

Bytes row_bytes(const ParameterHome& home, std::size_t replica, Bytes whole) {
  return whole / home.row_count() * home.rows_of(replica);
}

Bytes row_bytes(const ParameterHome& home, DeviceId device, Bytes whole) {
  const auto at = std::ranges::lower_bound(home.replicas, device);
  return at == home.replicas.end() || *at != device
             ? 0
             : row_bytes(home, static_cast<std::size_t>(at - home.replicas.begin()), whole);
}

Layout lay_out(const cost::Problem& problem, const Strategy& strategy) {
  Layout layout;
  LayoutPool pool(layout);
  layout.of_op.assign(problem.graph->op_count(), LayoutId());
  const IdVector<OpId, UnitId> unit_of_op = units_of_ops(problem, strategy);
  const auto units = unit_layouts(strategy, problem.batch, pool);
  lay_out_forward_and_backward(problem, unit_of_op, units, layout);
  place_parameters(problem, strategy, unit_of_op, units, layout);
  lay_out_update(problem, unit_of_op, units, layout, pool);
  lay_out_tied_sums(problem, layout);
  return layout;
}

OpId update_op(const cost::Problem& problem, const graph::UpdateChain& chain) {
  const OpId updater = problem.folded->updater[chain.parameter];
  return updater.valid() ? updater : chain.ops.back();
}

LayoutId task_layout(const cost::Problem& problem, const Layout& layout, OpId op) {
  if (problem.graph->op(op).phase != graph::Phase::kUpdate) return layout.of_op[op];
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    if (update_op(problem, chain) != op) continue;
    return layout.home_of[chain.parameter] == Layout::kNoHome ? LayoutId()
                                                              : layout.home(chain.parameter).update;
  }
  return layout.of_op[op];
}

}  // namespace heterog::decide

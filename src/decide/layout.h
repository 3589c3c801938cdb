// Layout: the slice and device of every instance of an op, and the devices that hold and aggregate
// every parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

using LayoutId = Id<struct LayoutTag>;

// How the gradient of one parameter is aggregated.
struct ParameterHome {
  std::vector<DeviceId> replicas;  // who holds the parameter, ascending: devices that read it, and
                                   // hosts that serve it
  LayoutId update;                 // where its update runs: the server, every replica, or those
                                   // that have rows of it
  // kGathered: of what is frozen; what is trained is kSharded then.
  SyncMethod method = SyncMethod::kAllReduce;
  DeviceId server;          // one server, or one replica: where the update runs; else invalid
  std::size_t hosts = 0;    // that serve, the last of the replicas
  std::uint32_t group = 0;  // ParameterSync::group
  // Of what is dealt by rows: replicas[i] keeps rows [rows[i], rows[i + 1]) of the optimizer state,
  // and updates these of the parameter; of a gathered one it keeps these alone. Else empty.
  std::vector<std::int64_t> rows;

  bool by_rows() const { return !rows.empty(); }
  bool sharded() const { return by_rows() && method == SyncMethod::kSharded; }
  // Frozen, and nobody has all of it but while it is used (decision 23).
  bool gathered() const { return by_rows() && method == SyncMethod::kGathered; }
  // Several servers have its rows.
  bool partitioned() const { return by_rows() && method == SyncMethod::kParameterServer; }
  std::int64_t row_count() const { return rows.empty() ? 0 : rows.back(); }
  std::int64_t rows_of(std::size_t replica) const { return rows[replica + 1] - rows[replica]; }
  // Devices that compute with the parameter.
  std::size_t device_count() const { return replicas.size() - hosts; }
  std::span<const DeviceId> devices() const { return std::span(replicas).first(device_count()); }
};

// Of `whole` bytes of a parameter that is dealt by rows, or of a tensor of its shape, those of the
// rows that are the device's.
Bytes row_bytes(const ParameterHome& home, std::size_t replica, Bytes whole);
Bytes row_bytes(const ParameterHome& home, DeviceId device, Bytes whole);

// Where everything runs, before any task is emitted: lay_out() decides it once for a strategy, and
// emission, the check of bytes and priorities read it.
//
//   slices[of_op[op]]               the instances of an op: devices with intervals of the batch
//   slices[merged[of_op[op]]]       the same with one instance per device
//   home(parameter).replicas        who holds the parameter
//   slices[home(parameter).update]  where its update runs: on its server, or on every replica
struct Layout {
  // Distinct slice lists; ops refer to them. A device may stand in one several times.
  IdVector<LayoutId, std::vector<Slice>> slices;
  IdVector<LayoutId, LayoutId> merged;        // as merge_by_device() does
  IdVector<OpId, LayoutId> of_op;             // invalid for folded aliases, members of chains
  IdVector<TensorId, std::uint32_t> home_of;  // index into homes; kNoHome for non-parameters
  // In id order of the parameters, and behind them those of frozen buffers that lie in rows.
  std::vector<ParameterHome> homes;
  std::vector<TensorId> gathered;  // frozen tensors that lie in rows (decision 23), ascending
  // Of optimizer state that is dealt by rows: index into homes, else kNoHome. Empty: nothing is.
  IdVector<TensorId, std::uint32_t> row_home_of;
  static constexpr std::uint32_t kNoHome = 0xffffffff;
  // Sums of gradients that come from different places (graph::TiedSum): each addend is aggregated
  // for itself, and they are added up where the parameter is updated. Ascending; mostly none.
  std::vector<OpId> sums_at_update;
  bool sums_at_its_update(OpId op) const {
    return !sums_at_update.empty() && std::ranges::binary_search(sums_at_update, op);
  }

  std::span<const Slice> op_slices(OpId op) const { return slices[of_op[op]]; }
  const ParameterHome& home(TensorId parameter) const { return homes[home_of[parameter]]; }
  // By whose rows optimizer state is dealt; null: it is whole wherever it is.
  const ParameterHome* row_home(TensorId state) const {
    if (row_home_of.empty() || row_home_of[state] == kNoHome) return nullptr;
    return &homes[row_home_of[state]];
  }
};

// Decisions 1 and 5. An op reads a value that only its own slice has (kLocal, kPartial) on the
// slices of its producer, whatever its own unit says. An op that replaces what stays, or whose
// results do not depend on the batch, runs once per device. A parameter lives on every device that
// reads it. Gradients of a tied parameter that come from different places are added up where it is
// updated. Throws an input error if an op would have to run once per device and reads what several
// instances there keep for themselves.
Layout lay_out(const cost::Problem& problem, const Strategy& strategy);

// Whether an op has one instance a device, however many micro-batches there are: several would
// replace a value that only the first of them finds there, or make the same value again.
bool runs_once_per_device(const cost::Problem& problem, OpId op);

// The op by which tasks of a parameter's update are named: the one that makes the parameter's next
// value, or the last, where none does.
OpId update_op(const cost::Problem& problem, const graph::UpdateChain& chain);

// The slices of the tasks that stand for an op in a plan: its own, or those of the update that it
// ends; invalid if it is part of another op's task.
LayoutId task_layout(const cost::Problem& problem, const Layout& layout, OpId op);

}  // namespace heterog::decide

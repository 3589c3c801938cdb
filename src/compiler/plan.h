// The compiled distributed step: tasks, what they wait for, what they hold, what they store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/csr.h"
#include "base/ids.h"
#include "cluster/cluster.h"
#include "compiler/payload.h"
#include "graph/types.h"

namespace heterog {

using TaskId = Id<struct TaskTag>;
// A device's compute stream, its collective channel, or one direction of a link.
using ResourceId = Id<struct ResourceTag>;

namespace compiler {

enum class TaskKind : std::uint8_t {
  kCompute,    // an op on a slice
  kMerge,      // slices put together on a device
  kTransfer,   // a slice of a tensor to another device
  kSum,        // partial values added on a device (the aggregation of a parameter server)
  kAllReduce,  // a collective over a device set: everyone gets the sum
  kPush,       // a gradient to its parameter server
  kPull,       // a new parameter from its server, or the new value of anything else that stays
  kUpdate,     // all ops that update parameters and their optimizer state: of one, or of several
               // that become ready together and are updated alike
  kOverhead,   // what a transfer or collective took of a device that moves bytes itself; nothing
               // waits for it, and nobody runs it: it stands for time
  kReduceScatter,  // a collective: everyone gets an interval of the sum
  kAllGather,      // a collective: everyone gets what all give
  kTurn,           // stands between two turns of a device (Strategy::sequence): takes no time, and
                   // nobody runs it
  kAccumulate,     // partial values of one device added there, in place, before anything travels
};
std::string_view task_kind_name(TaskKind kind);

// A transfer between two devices.
constexpr bool is_transfer(TaskKind kind) {
  return kind == TaskKind::kTransfer || kind == TaskKind::kPush || kind == TaskKind::kPull;
}
// Over a set of devices, which all take part.
constexpr bool is_collective(TaskKind kind) {
  return kind == TaskKind::kAllReduce || kind == TaskKind::kReduceScatter ||
         kind == TaskKind::kAllGather;
}
constexpr bool is_communication(TaskKind kind) { return is_transfer(kind) || is_collective(kind); }
// Adds partial values on one device.
constexpr bool is_sum(TaskKind kind) {
  return kind == TaskKind::kSum || kind == TaskKind::kAccumulate;
}
// It moves, gathers or adds values, and says which.
constexpr bool has_payload(TaskKind kind) {
  return is_communication(kind) || is_sum(kind) || kind == TaskKind::kMerge;
}
// How a task of the kind reduces what it carries.
constexpr Reduction reduction_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kMerge:
    case TaskKind::kAllGather:
      return Reduction::kGather;
    case TaskKind::kReduceScatter:
      return Reduction::kScatter;
    case TaskKind::kSum:
    case TaskKind::kAccumulate:
    case TaskKind::kAllReduce:
      return Reduction::kSum;
    default:
      return Reduction::kNone;
  }
}

// A resource that a task holds, for how long from its start, and what it moves over it.
struct Hold {
  ResourceId resource;
  Nanoseconds duration = 0;
  Bytes bytes = 0;  // links only
  friend bool operator==(const Hold&, const Hold&) = default;
};

// Memory of a device that is held during the whole step, by purpose.
struct StaticMemory {
  Bytes parameters = 0;
  Bytes optimizer_state = 0;
  Bytes buffers = 0;  // of the model (running statistics), and inputs
  Bytes reserve = 0;  // of the device type
  Bytes total() const { return parameters + optimizer_state + buffers + reserve; }
};

// Rows [begin, end) along axis 0 of a parameter: what a device updates, and the optimizer state
// that it keeps.
struct OwnedRows {
  DeviceId device;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const OwnedRows&, const OwnedRows&) = default;
};

// Structure of arrays, indexed by task. Immutable once compiled; only a Plan goes into the
// simulator and the runtime.
struct Plan {
  // Tasks, in a topological order.
  IdVector<TaskId, TaskKind> kind;
  IdVector<TaskId, OpId> op;             // compute: the op; update: the one that makes the new
                                         // parameter; else the producer or reader concerned
  IdVector<TaskId, TensorId> tensor;     // what is moved, summed or updated, the first of several;
                                         // invalid for compute
  IdVector<TaskId, DeviceId> device;     // where it runs; transfers: the destination;
                                         // collectives: the lowest device
  IdVector<TaskId, DeviceId> peer;       // transfers: the source; else invalid
  IdVector<TaskId, std::int64_t> begin;  // samples of the slice, [begin, end)
  IdVector<TaskId, std::int64_t> end;
  IdVector<TaskId, Nanoseconds> duration;
  IdVector<TaskId, Bytes> moved_bytes;  // of a transfer or collective; else 0
  IdVector<TaskId, PayloadId> payload;  // valid where has_payload(kind)
  // The longest path to the end of the step, its own duration included: a bound (decision 8). Of an
  // overhead, that of the most urgent task beside it.
  IdVector<TaskId, Nanoseconds> rank;
  // The priority that dispatch follows: a place in the order of urgency, 0 first, no two alike.
  IdVector<TaskId, std::uint32_t> priority;
  Csr<TaskId, TaskId> successors;
  IdVector<TaskId, std::uint32_t> predecessors;  // count
  Csr<TaskId, Hold> holds;
  // The GPUs whose kernels take part, ascending: of collectives all their devices, of transfers
  // that kernels move both ends; else empty.
  Csr<TaskId, DeviceId> participants;
  Csr<TaskId, TensorId> updated;  // updates: their parameters; else empty

  // The contents of payloads. Tensors: one, unless several share a collective. Contributions: of a
  // collective, one per participant and in their order; of a sum, in the order in which they are
  // added; of a merge, in that of samples; of a transfer, one.
  Csr<PayloadId, Carried> carried;
  Csr<PayloadId, Contribution> contributions;
  std::span<const Carried> carried_by(TaskId task) const { return carried[payload[task]]; }
  std::span<const Contribution> contributions_to(TaskId task) const {
    return contributions[payload[task]];
  }
  bool is_compressed(TaskId task) const {
    return payload[task].valid() && std::ranges::any_of(carried_by(task), [](const Carried& one) {
             return one.compression.any();
           });
  }
  // The encoding of the first contribution; only those of a sum may differ.
  Encoding encoding_of(TaskId task) const { return contributions_to(task).front().encoding; }

  // Memory. A task's buffers are taken when it starts; a buffer is given back when all its readers
  // have ended (if it has none, when its task ends). Workspace is held while the task runs.
  struct Buffer {
    DeviceId device;
    Bytes bytes = 0;
    TensorId tensor;
    bool is_scratch = false;  // of a communication: not its result, but what moves in its place
    friend bool operator==(const Buffer&, const Buffer&) = default;
  };
  IdVector<BufferId, Buffer> buffers;
  Csr<TaskId, BufferId> allocates;
  Csr<TaskId, BufferId> reads;                // one reference each
  IdVector<BufferId, std::uint32_t> readers;  // count
  IdVector<TaskId, Bytes> workspace;          // on the task's device
  // Of parameters that are sharded, gathered or have several servers, their optimizer state and
  // those of
  // their gradients that are scattered or pushed in parts: who has which rows, ascending, some of
  // them none; of all else empty.
  Csr<TensorId, OwnedRows> rows;
  std::span<const OwnedRows> rows_of(TensorId tensor) const {
    return rows.rows() == 0 ? std::span<const OwnedRows>() : rows[tensor];
  }
  IdVector<DeviceId, StaticMemory> static_memory;
  IdVector<DeviceId, Bytes> capacity;

  // By how many thousandths longer a device computes while it takes part in a collective, and in a
  // transfer: a task that holds its compute stream then goes on slower, and may end later than
  // `duration` says. What goes on side by side adds up. 0: not at all, as where this is empty.
  struct Drag {
    std::int32_t collective = 0, transfer = 0;
    friend bool operator==(const Drag&, const Drag&) = default;
  };
  IdVector<DeviceId, Drag> drag;
  std::int32_t drag_of(TaskId task, DeviceId participant) const {
    return is_transfer(kind[task]) ? drag[participant].transfer : drag[participant].collective;
  }

  // Resources: device_count compute streams, device_count collective channels, the cluster's links,
  // and one for all collectives where they are serial.
  std::size_t device_count = 0;
  std::size_t link_count = 0;
  std::size_t resource_count() const { return 2 * device_count + link_count + 1; }
  ResourceId compute_stream(DeviceId device) const { return ResourceId(device.value()); }
  ResourceId collective_channel(DeviceId device) const {
    return ResourceId(device_count + device.value());
  }
  ResourceId link(LinkId link) const { return ResourceId(2 * device_count + link.value()); }
  ResourceId all_collectives() const { return ResourceId(2 * device_count + link_count); }

  std::int64_t batch = 0;
  std::size_t task_count() const { return kind.size(); }
  IdRange<TaskId> task_ids() const { return id_range<TaskId>(task_count()); }
};

}  // namespace compiler
}  // namespace heterog

// What a planner decides: where each unit runs, in what shares, and how gradients travel.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cost/problem.h"

namespace heterog {

using UnitId = Id<struct UnitTag>;

namespace compiler {

// How the gradients of replicated parameters are aggregated.
enum class SyncMethod : std::uint8_t { kParameterServer, kAllReduce };
std::string_view sync_method_name(SyncMethod method);  // "ps", "all-reduce"

// One replica of a unit and its weight: slices of the batch are proportional to the weights.
struct Replica {
  DeviceId device;
  double weight = 1;
  friend bool operator==(const Replica&, const Replica&) = default;
};

// What the entries of a list of replicas that name one device come to.
enum class Instances : std::uint8_t {
  kPerDevice,  // together they are one instance on a larger slice, at the place of the first
  kPerEntry,   // each is an instance on a slice of its own: micro-batches
};
std::string_view instances_name(Instances instances);  // "per-device", "per-entry"

// Decision for one unit. One replica is model parallelism; the order of replicas is the order of
// their slices (decision 1).
struct UnitDecision {
  std::vector<Replica> replicas;
  SyncMethod sync = SyncMethod::kAllReduce;
  Instances instances = Instances::kPerDevice;
  // Its forward ops run again before its backward ops need what they make (decision 16).
  bool recompute = false;
  friend bool operator==(const UnitDecision&, const UnitDecision&) = default;
};

// Overrides the unit's sync for one parameter.
struct ParameterSync {
  TensorId parameter;
  SyncMethod method = SyncMethod::kAllReduce;
  DeviceId server;  // of a parameter server, one of the replicas; invalid: chosen by the compiler
                    // (decision 5)
  friend bool operator==(const ParameterSync&, const ParameterSync&) = default;
};

enum class OrderPolicy : std::uint8_t {
  kRank,        // of the ready tasks that can start, the one with the longest path to the end
  kFifo,        // the one that has been ready for longest
  kPriority,    // the most urgent by Strategy::priorities
  kRankQueued,  // as kRank, by ranks that count what queues up on links (compiler/order.h)
};
// "rank", "fifo", "priority", "rank-queued"
std::string_view order_policy_name(OrderPolicy policy);
std::optional<OrderPolicy> find_order_policy(std::string_view name);
// Those that need no priorities, as messages list them.
inline constexpr std::string_view kPlainOrders = "rank, rank-queued or fifo";

// The orders that need no priorities: which of them is best depends on the strategy.
inline constexpr std::array kSearchedOrders = {OrderPolicy::kRank, OrderPolicy::kFifo,
                                               OrderPolicy::kRankQueued};

// How urgent one instance of an op is, under OrderPolicy::kPriority: greater first. An op that
// updates a parameter stands for the whole update.
struct OpPriority {
  OpId op;
  std::uint32_t instance = 0;  // of the op's slices, in their order
  std::int64_t priority = 0;
  friend bool operator==(const OpPriority&, const OpPriority&) = default;
};

// What a device does between two points at which it finishes with one thing before it begins the
// next: the ops of units [begin, end), which have one and the same list of instances, on the slice
// of one of its entries.
struct Turn {
  UnitId begin;
  UnitId end;
  std::uint32_t entry = 0;  // of the units' replicas; its device is the one whose turn it is
  friend bool operator==(const Turn&, const Turn&) = default;
};

// The whole answer of a planner. Empty members mean the default named beside them.
struct Strategy {
  IdVector<OpId, UnitId> unit_of_op;     // empty: the problem's groups are the units
  IdVector<UnitId, UnitDecision> units;  // one a unit
  std::vector<ParameterSync> sync;       // empty: every parameter as its unit says
  OrderPolicy order = OrderPolicy::kRank;
  std::vector<OpPriority> priorities;  // kPriority: of what is not named, 0; else empty
  // Turns of each device, strictly one after the other (decision 17). What is in no turn runs when
  // it can. Empty: no turns. Not with kPriority.
  IdVector<DeviceId, std::vector<Turn>> sequence;
  Bytes bucket_bytes = 0;  // gradients that share one all-reduce; 0: one each
  friend bool operator==(const Strategy&, const Strategy&) = default;
};

// Every unit with the same decision, on the problem's groups.
Strategy uniform_strategy(const cost::Problem& problem, const UnitDecision& decision);
// Replicas of EV (one each) and CP (problem.proportional) over all devices.
UnitDecision even_decision(const cost::Problem& problem, SyncMethod sync);
UnitDecision proportional_decision(const cost::Problem& problem, SyncMethod sync);
UnitDecision single_decision(DeviceId device);

// The unit of an op.
UnitId unit_of(const cost::Problem& problem, const Strategy& strategy, OpId op);

// A contiguous interval of the batch's samples on a device.
struct Slice {
  DeviceId device;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Slices of `batch` in the order of the replicas: sizes by largest remainder (ties: the earlier
// replica), empty slices left out (decision 1). The first: one slice per device, at the place of
// its first replica.
std::vector<Slice> slice_batch(const std::vector<Replica>& replicas, std::int64_t batch);
std::vector<Slice> slice_batch(const UnitDecision& decision, std::int64_t batch);
// The slice of each entry of a list whose entries are instances each; empty ones are among them.
std::vector<Slice> entry_slices(const UnitDecision& decision, std::int64_t batch);
// One slice per device, as large as all of its slices together, at the place of the first.
std::vector<Slice> merge_by_device(std::span<const Slice> slices);

}  // namespace compiler
}  // namespace heterog

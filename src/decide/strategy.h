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

namespace decide {

// How the gradients of replicated parameters are aggregated.
enum class SyncMethod : std::uint8_t {
  kParameterServer,
  kAllReduce,
  kSharded,  // each device keeps the optimizer state of some rows, and updates these: a gradient is
             // scattered, the new parameter gathered (ZeRO stage 1; decision 19). A parameter whose
             // update is not row by row, or that one device has, is all-reduced.
  kGathered,  // as kSharded, and of a frozen parameter each device keeps some rows, which are
              // gathered for each pass (ZeRO stage 3; decision 23)
};
inline constexpr std::array kSyncMethods = {SyncMethod::kParameterServer, SyncMethod::kAllReduce,
                                            SyncMethod::kSharded, SyncMethod::kGathered};
// "ps", "all-reduce", "sharded", "gathered"
std::string_view sync_method_name(SyncMethod method);

// One replica of a unit and its weight: slices of the batch are proportional to the weights.
struct Replica {
  DeviceId device;
  double weight = 1;
  friend bool operator==(const Replica&, const Replica&) = default;
};

// Decision for one unit. One replica is model parallelism; the order of replicas is the order of
// their slices (decision 1).
struct UnitDecision {
  std::vector<Replica> replicas;
  SyncMethod sync = SyncMethod::kAllReduce;
  // Its forward ops run again before its backward ops need what they make (decision 16).
  bool recompute = false;
  // Each replica takes whole micro-batches in turn (PipeDream), not a part of every one.
  bool in_turn = false;
  friend bool operator==(const UnitDecision&, const UnitDecision&) = default;
};

// Overrides the unit's sync for one parameter.
struct ParameterSync {
  TensorId parameter;
  SyncMethod method = SyncMethod::kAllReduce;
  DeviceId server;  // of a parameter server, one of the replicas; invalid: chosen by the compiler
                    // (decision 5)
  // Several servers in its place: each has rows along axis 0 in proportion to its weight. A
  // parameter that cannot be dealt so has one server, chosen by the compiler (decision 20).
  std::vector<Replica> servers;
  // Gradients of the same number, above 0, share a collective, however large it gets; of one method
  // and on the same devices. 0: with whatever is ready next, up to Strategy::bucket_bytes.
  std::uint32_t group = 0;
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

// How urgent one instance of an op is, under OrderPolicy::kPriority: greater first. An op that
// updates a parameter stands for the whole update.
struct OpPriority {
  OpId op;
  std::uint32_t instance = 0;  // of the op's slices, in their order
  std::int64_t priority = 0;
  friend bool operator==(const OpPriority&, const OpPriority&) = default;
};

// In which order a device takes the forward and backward passes of the micro-batches: its turns
// (decide/patterns.h).
enum class Pattern : std::uint8_t {
  kNone,                   // whatever the order policy says
  kDepthFirst,             // forward and backward pass of one micro-batch before the next
  kForwardFirst,           // GPipe: all forward passes, then all backward passes
  kOneForwardOneBackward,  // PipeDream: one of each in turns, once the stages behind are busy
  kListed,                 // SPP's PE: one micro-batch at a time over each block, round and round
  kZeroBubble,  // as 1F1B, but for gradients of parameters, which wait until a device idles
};
inline constexpr std::array kPatterns = {Pattern::kNone,         Pattern::kDepthFirst,
                                         Pattern::kForwardFirst, Pattern::kOneForwardOneBackward,
                                         Pattern::kListed,       Pattern::kZeroBubble};
// "none", "depth-first", "forward-first", "1f1b", "listed", "zero-bubble"
std::string_view pattern_name(Pattern pattern);
std::optional<Pattern> find_pattern(std::string_view name);

// The whole answer of a planner: decisions alone. What follows from them (instances, priorities,
// turns) is worked out when the strategy is compiled. Empty members mean the default named beside
// them.
struct Strategy {
  IdVector<OpId, UnitId> unit_of_op;     // empty: the problem's groups are the units
  IdVector<UnitId, UnitDecision> units;  // one a unit
  std::vector<ParameterSync> sync;       // empty: every parameter as its unit says
  OrderPolicy order = OrderPolicy::kRank;
  // kPriority: of what is not named, 0. Empty under kPriority: those of the pattern.
  std::vector<OpPriority> priorities;
  // In so many rounds the order is improved by its own schedule (sim/improved_order.h). Not of
  // strict turns, which are an order already.
  int order_rounds = 0;
  // Gradients that share one collective, unless they have a group of their own; 0: one each.
  Bytes bucket_bytes = 0;
  // Of sharded and gathered parameters, each device has rows in proportion to its weight, a number
  // above 0. Empty: as even as can be.
  IdVector<DeviceId, double> row_weights;
  // The batch in so many parts, as even as can be, one behind the other (decision 14). Over all of
  // them, every replica has the samples that it has of the whole batch.
  std::int64_t micro_batches = 1;
  // Of several micro-batches: whose turn it is. With kPriority a device that would wait takes the
  // next turn that is ready; if `strict`, it waits (decision 17), and the order policy is one
  // without priorities.
  Pattern pattern = Pattern::kNone;
  bool strict = false;
  // Pipelines side by side: which of them each device belongs to. A pipeline has its part of every
  // micro-batch in all of its stages. Empty: one pipeline.
  IdVector<DeviceId, std::uint32_t> pipeline_of;
  friend bool operator==(const Strategy&, const Strategy&) = default;
};

inline constexpr int kMostOrderRounds = 1000;
inline constexpr std::uint32_t kMostGroups = 1'000'000;  // ParameterSync::group

// What devices go by in the compiled plan: the strategy's order, or the priorities of its rounds.
inline OrderPolicy dispatch_order(const Strategy& strategy) {
  return strategy.order_rounds > 0 ? OrderPolicy::kPriority : strategy.order;
}

// The same decisions in an order that needs no priorities.
void set_plain_order(Strategy& strategy, OrderPolicy order);

// Every unit with the same decision, on the problem's groups.
Strategy uniform_strategy(const cost::Problem& problem, const UnitDecision& decision);
// Replicas of EV (one each) and CP (problem.proportional) over all devices.
UnitDecision even_decision(const cost::Problem& problem, SyncMethod sync);
UnitDecision proportional_decision(const cost::Problem& problem, SyncMethod sync);
UnitDecision single_decision(DeviceId device);

// The unit of an op; of each.
UnitId unit_of(const cost::Problem& problem, const Strategy& strategy, OpId op);
IdVector<OpId, UnitId> units_of_ops(const cost::Problem& problem, const Strategy& strategy);

// A contiguous interval of the batch's samples on a device.
struct Slice {
  DeviceId device;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Slices of `batch` in the order of the replicas: sizes by largest remainder (ties: the earlier
// replica), one slice per device, at the place of its first replica; empty slices left out
// (decision 1).
std::vector<Slice> slice_batch(const std::vector<Replica>& replicas, std::int64_t batch);
// The same of rows along axis 0 of a parameter, over devices of these weights (by device; empty:
// all alike): device i has rows [result[i], result[i + 1]).
std::vector<std::int64_t> deal_rows(std::int64_t rows, std::span<const DeviceId> devices,
                                    const IdVector<DeviceId, double>& weights);
// One slice per device, as large as all of its slices together, at the place of the first.
std::vector<Slice> merge_by_device(std::span<const Slice> slices);

}  // namespace decide
}  // namespace heterog

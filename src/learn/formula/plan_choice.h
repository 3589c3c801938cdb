// What the policy decides of a plan as a whole, beside the layout of its groups: a value a knob.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decide/decisions.h"
#include "decide/strategy.h"

namespace heterog::learn {

// Which rows a layout may have, and how its gradients travel.
enum class LayoutMode : std::uint8_t {
  kAllReduce,       // rows by all-reduce
  kServers,         // rows by parameter server
  kServersInstead,  // laid out for all-reduce, given with parameter servers
  kReduceInstead,   // laid out for parameter servers, given with all-reduce
  kMixed,           // any row as it is
  kSharded,         // laid out for all-reduce, optimizer state in shards
  kFewerReduce,     // as kAllReduce, without devices of the slowest type
  kFewerServers,    // as kServers, without these
  kStages,          // sets of at most half of the devices, in their order: a pipeline
};
inline constexpr std::size_t kLayoutModes = 9;

// The part of the aggregation that computation does not hide.
inline constexpr std::array<double, 4> kUnhidden = {0.2, 0.05, 0.5, 1.0};

// The knobs, and how many values each has.
enum class Knob : std::uint8_t { kLayout, kOrder, kBucket, kParts, kRecompute };
inline constexpr std::array<std::size_t, 5> kKnobValues = {kLayoutModes * kUnhidden.size(), 3, 3, 5,
                                                           2};
inline constexpr std::size_t kLayouts = kKnobValues[0];
inline constexpr std::int64_t kOtherKnobValues =
    kKnobValues[1] + kKnobValues[2] + kKnobValues[3] + kKnobValues[4];
// Numbers by which the network knows a layout (layout_features).
inline constexpr std::int64_t kLayoutFeatures = kLayoutModes + kUnhidden.size() + 7;
inline constexpr std::array<decide::OrderPolicy, 3> kOrderValues = {
    decide::OrderPolicy::kRankQueued, decide::OrderPolicy::kRank, decide::OrderPolicy::kFifo};
inline constexpr std::array<Bytes, 3> kBucketValues = {0, decide::kLargeBucketBytes,
                                                       decide::kLargestBucketBytes};
inline constexpr std::array<std::int64_t, 5> kPartValues = {8, 4, 16, 2, 32};

// A value of each knob.
using PlanChoice = std::array<std::uint32_t, kKnobValues.size()>;

inline LayoutMode mode_of(std::size_t layout) {
  return static_cast<LayoutMode>(layout / kUnhidden.size());
}
inline double unhidden_of(std::size_t layout) { return kUnhidden[layout % kUnhidden.size()]; }
// Whether a knob says anything of plans of this layout: order and buckets are those of the batch as
// a whole, micro-batches those of stages.
inline bool matters(Knob knob, LayoutMode mode) {
  const bool stages = mode == LayoutMode::kStages;
  switch (knob) {
    case Knob::kOrder:
      return !stages;
    case Knob::kBucket:
      return !stages && mode != LayoutMode::kServers && mode != LayoutMode::kServersInstead &&
             mode != LayoutMode::kFewerServers;
    case Knob::kParts:
      return stages;
    case Knob::kLayout:
    case Knob::kRecompute:
      return true;
  }
  return true;
}

}  // namespace heterog::learn

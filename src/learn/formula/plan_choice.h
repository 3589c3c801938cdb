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
  kPipeline,        // the stages that a dynamic program finds fastest
  kOtherPipeline,   // the fastest of another number of stages
};
inline constexpr std::size_t kLayoutModes = 10;
constexpr bool is_pipeline(LayoutMode mode) {
  return mode == LayoutMode::kPipeline || mode == LayoutMode::kOtherPipeline;
}

// Of a layout of groups: the part of the aggregation that computation does not hide.
inline constexpr std::array<double, 4> kUnhidden = {0.2, 0.05, 0.5, 1.0};
// Of a pipeline: its micro-batches.
inline constexpr std::array<std::int64_t, 4> kPipelineParts = {8, 4, 16, 32};
static_assert(kUnhidden.size() == kPipelineParts.size());

// The knobs, and how many values each has.
enum class Knob : std::uint8_t { kLayout, kOrder, kBucket, kRecompute, kServers };
inline constexpr std::array<std::size_t, 5> kKnobValues = {kLayoutModes * kUnhidden.size(), 3, 3, 2,
                                                           2};
inline constexpr std::size_t kLayouts = kKnobValues[0];
inline constexpr std::int64_t kOtherKnobValues =
    kKnobValues[1] + kKnobValues[2] + kKnobValues[3] + kKnobValues[4];
// Numbers by which the network knows a layout (layout_features).
inline constexpr std::int64_t kLayoutFeatures = kLayoutModes + kUnhidden.size() + 10;
// Of Knob::kOrder, of a layout of groups and of a pipeline.
inline constexpr std::array<decide::OrderPolicy, 3> kOrderValues = {
    decide::OrderPolicy::kRankQueued, decide::OrderPolicy::kRank, decide::OrderPolicy::kFifo};
inline constexpr std::array<decide::Pattern, 3> kPatternValues = {
    decide::Pattern::kZeroBubble, decide::Pattern::kOneForwardOneBackward,
    decide::Pattern::kListed};
static_assert(kOrderValues.size() == kPatternValues.size());
// Of Knob::kServers: a parameter has one server, or several with a part of its rows each.
inline constexpr std::uint32_t kOneServer = 0, kSeveralServers = 1;
inline constexpr std::array<Bytes, 3> kBucketValues = {0, decide::kLargeBucketBytes,
                                                       decide::kLargestBucketBytes};

// A value of each knob.
using PlanChoice = std::array<std::uint32_t, kKnobValues.size()>;

inline LayoutMode mode_of(std::size_t layout) {
  return static_cast<LayoutMode>(layout / kUnhidden.size());
}
inline double unhidden_of(std::size_t layout) { return kUnhidden[layout % kUnhidden.size()]; }
inline std::int64_t parts_of(std::size_t layout) {
  return kPipelineParts[layout % kPipelineParts.size()];
}
// Whether a knob says anything of plans of this layout: buckets and servers are those of the batch
// as a whole.
inline bool matters(Knob knob, LayoutMode mode) {
  switch (knob) {
    case Knob::kBucket:
      return !is_pipeline(mode) && mode != LayoutMode::kServers &&
             mode != LayoutMode::kServersInstead && mode != LayoutMode::kFewerServers;
    case Knob::kServers:
      return mode == LayoutMode::kServers || mode == LayoutMode::kServersInstead ||
             mode == LayoutMode::kMixed || mode == LayoutMode::kFewerServers;
    case Knob::kLayout:
    case Knob::kOrder:
    case Knob::kRecompute:
      return true;
  }
  return true;
}

}  // namespace heterog::learn

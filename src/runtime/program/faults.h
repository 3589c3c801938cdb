// Breaks a job on purpose.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "compiler/plan.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// Faults that a runtime could have, to see that verification finds them.
enum class Fault : std::uint8_t {
  kDropContribution,  // one replica's part of one gradient is left out
  kEqualWeights,      // gradients of unequal slices count alike, as a mean over replicas does it
  kSkipPull,          // one replica keeps an old parameter
  kDropMicroBatch,    // a device leaves out the gradients of one of its micro-batches
  kSwapTurns,         // a backward op of two micro-batches: each reads what the other one saved
  kStaleParameter,    // a micro-batch reads the version of a parameter before the first update
  kSkipGather,        // one replica keeps the old rows that others have updated
  kOldShard,          // one replica does not update rows that are its own
  kWrongRows,         // one replica updates its rows from other rows of the parameter
  kZeroRows,          // of a frozen parameter, one replica gives zeros in place of its rows
};
// The name of each, as `verify --break` takes it, in their order.
inline constexpr std::array<std::string_view, 10> kFaultNames = {
    "drop-contribution", "equal-weights", "skip-pull", "drop-micro-batch", "swap-turns",
    "stale-parameter",   "skip-gather",   "old-shard", "wrong-rows",       "zero-rows"};
// Throws an input error if the job has nothing of the kind.
void inject(Job& job, const compiler::Plan& plan, Fault fault);

}  // namespace heterog::runtime

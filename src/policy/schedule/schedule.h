// What a strategy decides as a whole, beside its groups: the order of execution, buckets of
// gradients, micro-batches and recomputation, each an index into a small table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "compiler/strategy.h"
#include "cost/problem.h"

namespace heterog::policy {

// Rank-reserve wins nowhere, so it is there for cases alone that are told to take it.
inline constexpr std::array kScheduleOrders = {
    compiler::OrderPolicy::kRank, compiler::OrderPolicy::kFifo, compiler::OrderPolicy::kRankQueued,
    compiler::OrderPolicy::kRankReserve};
inline constexpr std::array<Bytes, 5> kScheduleBuckets = {0, 1 << 22, 1 << 24, 1 << 26, 1 << 28};
inline constexpr std::array<std::int64_t, 3> kScheduleMicroBatches = {1, 2, 4};

enum ScheduleDecision : std::size_t { kOrder, kBucket, kMicroBatches, kRecompute, kDecisions };
// How many options each decision has. Those of all decisions are numbered through, in this order.
inline constexpr std::array<std::size_t, kDecisions> kOptions = {
    kScheduleOrders.size(), kScheduleBuckets.size(), kScheduleMicroBatches.size(), 2};
inline constexpr std::size_t kAllOptions =
    std::accumulate(kOptions.begin(), kOptions.end(), std::size_t{0});
constexpr std::size_t first_option(std::size_t decision) {
  return std::accumulate(kOptions.begin(), kOptions.begin() + decision, std::size_t{0});
}

// The option of each decision, from 0. Recomputation: 0 none, 1 in all groups. In several
// micro-batches the order is that of compiler::accumulate, whatever is chosen.
using Schedule = std::array<std::uint8_t, kDecisions>;

// What a case may decide.
struct ScheduleSpace {
  Schedule usual{};  // in the case's order; nothing else is decided
  std::array<bool, kAllOptions> allowed{};
  bool allows(std::size_t decision, std::size_t option) const {
    return allowed[first_option(decision) + option];
  }
};
// Micro-batches are allowed as far as the batch goes, and not where an evaluation takes long
// already: each is about as long again. `usual_order` must be in the table.
ScheduleSpace schedule_space(const cost::Problem& problem, compiler::OrderPolicy usual_order);

// The same strategy, of the problem's batch in one piece, with the schedule.
compiler::Strategy scheduled(const cost::Problem& problem, compiler::Strategy strategy,
                             const Schedule& schedule);

// A schedule, and what of it was drawn: decisions [begin, end). `without`: the option, numbered
// through, that could not be drawn; kAllOptions: any could.
struct ScheduleDraw {
  Schedule schedule{};
  std::size_t begin = 0;
  std::size_t end = kDecisions;
  std::size_t without = kAllOptions;
};

}  // namespace heterog::policy

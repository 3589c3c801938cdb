// The strategies that need no search: plain data parallelism, Horovod, one device.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cost/problem.h"
#include "decide/decisions.h"
#include "decide/strategy.h"
#include "search/registry.h"

namespace heterog::search {

// Every device a whole replica (EV) or replicas by speed (CP); parameter server or all-reduce.
decide::Strategy even_ps(const cost::Problem& problem);
decide::Strategy even_all_reduce(const cost::Problem& problem);
decide::Strategy proportional_ps(const cost::Problem& problem);
decide::Strategy proportional_all_reduce(const cost::Problem& problem);

// Even shares and all-reduce of gradients fused into buckets. Horovod fuses what has become ready
// by the end of a cycle of 5 ms, or while the collective before ran, up to HOROVOD_FUSION_THRESHOLD
// of 64 MiB; it never waits for so many, so that a bucket that closes at 16 MiB is nearer to it
// than one of 64 (docs/clusters.md has both beside its published steps).
decide::Strategy horovod(const cost::Problem& problem);

decide::Strategy single_device(const cost::Problem& problem, DeviceId device);

struct NamedStrategy {
  std::string name;
  decide::Strategy strategy;
};
// Every strategy that a baseline of the registry stands for, under the baseline's name: data
// parallelism in three orders (rank, queued ranks, FIFO; a baseline counts at its best, so that no
// gain over it comes from a bad order), "single" once per
// type of device and memory.
std::vector<NamedStrategy> baseline_strategies(const cost::Problem& problem);

// In which order the tasks of a baseline start.
enum class BaselineOrder : std::uint8_t { kBetter, kRank, kRankQueued, kFifo };  // kBetter: of all

struct BaselineOptions {
  BaselineOrder order = BaselineOrder::kBetter;
};
bool in_order(const decide::Strategy& strategy, BaselineOrder order);
inline constexpr std::array<std::string_view, 4> kBaselineOrderWords = {"better", "rank",
                                                                        "rank-queued", "fifo"};
template <class Options>
constexpr Field<Options> baseline_order_field() {
  return {"order",
          "which ready task starts first: by rank, by rank with the queues on links counted in, "
          "the one ready longest, or whichever order is best",
          choice<Options, &Options::order>(kBaselineOrderWords)};
}
inline constexpr std::array<Field<BaselineOptions>, 1> kBaselineFields = {
    baseline_order_field<BaselineOptions>()};
// Where the optimizer's state is, and with kGathered what is frozen. kAuto: the best of all, the
// last where nothing else fits.
enum class StateOption : std::uint8_t { kWhole, kSharded, kGathered, kByMemory, kAuto };
inline constexpr std::array<std::string_view, 5> kStateWords = {"whole", "sharded", "gathered",
                                                                "by-memory", "auto"};
template <class Options>
constexpr Field<Options> state_field() {
  return {"state",
          "the optimizer's state: whole on every device; of every parameter's an equal part of the "
          "rows on each (ZeRO stage 1); so, and frozen parameters in rows too, equal ones or by "
          "memory, gathered for each pass (stage 3); rows of the state by the memory that devices "
          "have left; or whichever fits and is fastest",
          choice<Options, &Options::state>(kStateWords)};
}
struct AllReduceOptions : BaselineOptions {
  StateOption state = StateOption::kWhole;
};
// As HorovodOptions::bucket_bytes: the best of several sizes.
inline constexpr std::int64_t kTunedBuckets = 0;
struct HorovodOptions : AllReduceOptions {
  std::int64_t bucket_bytes = decide::kHorovodBucketBytes;
};
struct SingleOptions {
  DeviceId device;  // invalid: the best one
};
// Rows of the registry, in the order of baseline_strategies.
std::vector<PlannerEntry> baseline_entries();

}  // namespace heterog::search

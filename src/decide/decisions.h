// Every value worth trying of what a plan decides as a whole: whoever searches, draws or lists them
// takes them from here. Sets of devices depend on the cluster: space/device_sets.h.
#pragma once

#include <array>
#include <cstdint>

#include "decide/strategy.h"

namespace heterog::decide {

// Orders of execution that need no priorities: which of them is best depends on the strategy.
inline constexpr std::array kSearchedOrders = {OrderPolicy::kRank, OrderPolicy::kFifo,
                                               OrderPolicy::kRankQueued};

// Gradients that share an all-reduce: none, as PyTorch's DistributedDataParallel has it, as
// Horovod, and larger ones, which pay where a collective is slow to start.
inline constexpr Bytes kDdpBucketBytes = Bytes{25} << 20;
inline constexpr Bytes kHorovodBucketBytes = Bytes{16} << 20;
inline constexpr Bytes kLargeBucketBytes = Bytes{64} << 20;
inline constexpr Bytes kLargestBucketBytes = Bytes{256} << 20;
// All that one layout makes: they travel once the last of them is there.
inline constexpr Bytes kOneBucketBytes = Bytes{1} << 50;
inline constexpr std::array<Bytes, 5> kSearchedBuckets = {0, Bytes{4} << 20, kHorovodBucketBytes,
                                                          kLargeBucketBytes, kLargestBucketBytes};

// Numbers of micro-batches: of pipelines, of few of them where every plan is looked at, and of data
// parallelism that does not fit otherwise.
inline constexpr std::array<std::int64_t, 11> kPipelineParts = {2,  3,  4,  6,  8, 12,
                                                                16, 24, 32, 48, 64};
inline constexpr std::array<std::int64_t, 5> kFewPipelineParts = {2, 3, 4, 6, 8};
inline constexpr std::array<std::int64_t, 3> kAccumulatedParts = {8, 4, 2};

}  // namespace heterog::decide

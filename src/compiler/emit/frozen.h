// Frozen tensors that lie in rows, while a plan is emitted: which are gathered together, and who
// has what was gathered.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/plan.h"
#include "decide/frozen.h"

namespace heterog::compiler {

// Tensors that share a gather close it at so many bytes, as Horovod's default of gradients is
// (search/starts/baselines.h), or at this part of all that lies in rows, whichever is less: what is
// held for a while stays small beside what is kept.
inline constexpr Bytes kFrozenTogether = Bytes{16} << 20;
inline constexpr Bytes kFrozenParts = 16;

// One gather that has been emitted. Parallel to the devices that hold the tensors.
struct FrozenGather {
  TaskId task;
  std::vector<BufferId> whole;
  std::vector<TaskId> latest_reader;  // so far; invalid: none
};

// Tensors that lie on the same devices and that a pass gathers together.
struct FrozenBucket {
  std::vector<TensorId> tensors;  // in the order of their first readers
  Bytes bytes = 0;
  decide::Pass pass = decide::Pass::kForward;
  std::size_t rounds = 0;  // as decide::PassUse says of each
  // The bucket that is used two before this one on the same devices, in as many rounds, forward
  // pass and backward pass one after the other; kNone: there is none.
  std::uint32_t two_before = kNone;
  std::vector<FrozenGather> gathers;  // by round; an invalid task: not yet
  static constexpr std::uint32_t kNone = 0xffffffff;
};

struct FrozenGathers {
  FrozenGathers() = default;
  FrozenGathers(const cost::Problem& problem, const decide::Layout& layout,
                const decide::Recomputation& recomputation);

  // Whether it lies in rows.
  bool has(TensorId tensor) const {
    return !bucket_of[0].empty() && (bucket_of[0][tensor] != FrozenBucket::kNone ||
                                     bucket_of[1][tensor] != FrozenBucket::kNone);
  }
  FrozenBucket& bucket(TensorId tensor) {
    return buckets[bucket_of[static_cast<std::size_t>(pass)][tensor]];
  }

  decide::Pass pass = decide::Pass::kForward;  // of the op that is emitted
  std::vector<FrozenBucket> buckets;
  std::vector<std::vector<std::uint32_t>> lines;  // buckets of each such sequence
  // By pass; empty where nothing lies in rows.
  std::array<IdVector<TensorId, std::uint32_t>, 2> bucket_of;
};

}  // namespace heterog::compiler

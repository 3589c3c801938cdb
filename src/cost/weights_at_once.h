// Number of an attention's weights that are in memory at once, where some are dropped. The runtime
// computes by this rule, and memory is predicted with it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace heterog::cost {

// Samples are computed together, as many as fit `in_all` and one at least.
struct WeightsAtOnce {
  Bytes of_weight = 0;  // scratch memory
  Bytes in_all = 0;

  // `weights`: of one sample, heads · queries · keys.
  std::int64_t samples(std::int64_t weights) const {
    return std::max<std::int64_t>(1, in_all / std::max<Bytes>(1, weights * of_weight));
  }
};

// Written out: scores and weights, backward their gradients too, in single precision, and a byte
// that says whether a weight stays. Few at once, which a cache holds.
inline constexpr WeightsAtOnce kForwardWrittenOut{2 * 4 + 1, Bytes{16} << 20};
inline constexpr WeightsAtOnce kBackwardWrittenOut{4 * 4 + 1, Bytes{16} << 20};

// On a GPU: products in single precision and weights in the operands' type, backward the gradients
// of both too. Many at once: every block is launches of its own.
constexpr WeightsAtOnce weights_at_once_on_gpu(Bytes of_operand, bool backward) {
  return {(backward ? 2 : 1) * (4 + of_operand), Bytes{512} << 20};
}

}  // namespace heterog::cost

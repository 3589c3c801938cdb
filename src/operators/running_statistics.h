// Batch normalisations that keep a running mean and variance.
#pragma once

#include "operators/facts.h"

namespace heterog::operators {

// One of training, which is given running statistics and makes the next ones.
inline bool makes_running_statistics(const Facts& facts) {
  const auto& statistics = facts.batch_statistics;
  return statistics && statistics->running && !statistics->backward;
}

}  // namespace heterog::operators

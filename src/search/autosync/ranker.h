// A linear model that ranks points, learnt from pairs of measured ones.
#pragma once

#include <span>

#include "base/rng.h"
#include "search/autosync/sync_cost.h"

namespace heterog::search {

// The score of a point is the greater, the longer its step should be. In no unit.
struct LinearRanker {
  SyncFeatures mean{}, scale{}, weights{};
  double score(const SyncFeatures& features) const;
};

struct MeasuredPoint {
  SyncFeatures features{};
  double seconds = 0;
};

// Pairwise ranking loss, log(1 + exp(−(score of the longer − score of the shorter))), over pairs of
// points, by Adam: × 0.3 at epochs 80 and 160 of 200, the gradient's norm clipped at 0.25 (§10).
// The rate is 1e-2, ten times the paper's, as the weights are few. An epoch pairs each point with
// another at random.
LinearRanker train_ranker(std::span<const MeasuredPoint> points, Rng& rng);

// Of all pairs of different steps, the part whose shorter one has the lower score.
double ranking_accuracy(std::span<const MeasuredPoint> points, std::span<const double> scores);

}  // namespace heterog::search

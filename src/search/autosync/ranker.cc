// Adam over pairs.
#include "search/autosync/ranker.h"

#include <algorithm>
#include <cmath>

namespace heterog::search {
namespace {

constexpr std::size_t kCount = kSyncFeatures.size();

void standardise(std::span<const MeasuredPoint> points, LinearRanker& ranker) {
  for (std::size_t f = 0; f < kCount; ++f) {
    double sum = 0, squares = 0;
    for (const MeasuredPoint& point : points) sum += point.features[f];
    ranker.mean[f] = sum / static_cast<double>(points.size());
    for (const MeasuredPoint& point : points) {
      squares += (point.features[f] - ranker.mean[f]) * (point.features[f] - ranker.mean[f]);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(points.size()));
    // What is the same in all points says nothing.
    ranker.scale[f] = deviation > 1e-9 * std::abs(ranker.mean[f]) ? 1 / deviation : 0;
  }
}

SyncFeatures standardised(const LinearRanker& ranker, const SyncFeatures& features) {
  SyncFeatures result{};
  for (std::size_t f = 0; f < kCount; ++f) {
    result[f] = (features[f] - ranker.mean[f]) * ranker.scale[f];
  }
  return result;
}

}  // namespace

double LinearRanker::score(const SyncFeatures& features) const {
  double sum = 0;
  for (std::size_t f = 0; f < kCount; ++f) {
    sum += weights[f] * (features[f] - mean[f]) * scale[f];
  }
  return sum;
}

LinearRanker train_ranker(std::span<const MeasuredPoint> points, Rng& rng) {
  LinearRanker ranker;
  if (points.empty()) return ranker;
  standardise(points, ranker);
  std::vector<SyncFeatures> inputs;
  for (const MeasuredPoint& point : points) inputs.push_back(standardised(ranker, point.features));
  SyncFeatures first{}, second{};
  double rate = 1e-2, first_left = 1, second_left = 1;
  for (int epoch = 0; epoch < 200; ++epoch) {
    if (epoch == 80 || epoch == 160) rate *= 0.3;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t j = rng.below(points.size());
      if (points[i].seconds == points[j].seconds) continue;
      const bool longer = points[i].seconds > points[j].seconds;
      const SyncFeatures &more = inputs[longer ? i : j], &less = inputs[longer ? j : i];
      double margin = 0;
      for (std::size_t f = 0; f < kCount; ++f) margin += ranker.weights[f] * (more[f] - less[f]);
      const double slope = -1 / (1 + std::exp(margin));
      SyncFeatures gradient{};
      double norm = 0;
      for (std::size_t f = 0; f < kCount; ++f) {
        gradient[f] = slope * (more[f] - less[f]);
        norm += gradient[f] * gradient[f];
      }
      const double clip = std::min(1.0, 0.25 / std::max(std::sqrt(norm), 1e-12));
      first_left *= 0.9;
      second_left *= 0.999;
      for (std::size_t f = 0; f < kCount; ++f) {
        const double g = gradient[f] * clip;
        first[f] = 0.9 * first[f] + 0.1 * g;
        second[f] = 0.999 * second[f] + 0.001 * g * g;
        const double step = first[f] / (1 - first_left);
        ranker.weights[f] -= rate * step / (std::sqrt(second[f] / (1 - second_left)) + 1e-8);
      }
    }
  }
  return ranker;
}

double ranking_accuracy(std::span<const MeasuredPoint> points, std::span<const double> scores) {
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      if (points[i].seconds == points[j].seconds) continue;
      ++pairs;
      if (scores[i] == scores[j]) {
        right += 0.5;
      } else if ((points[i].seconds < points[j].seconds) == (scores[i] < scores[j])) {
        ++right;
      }
    }
  }
  return pairs > 0 ? right / pairs : 1;
}

}  // namespace heterog::search

// Forward passes.
#include "planner/scorer/move_network.h"

#include <algorithm>

#include "planner/scorer/move_features.h"

namespace heterog::planner {

float MoveNetwork::operator()(std::span<const float> features) const {
  std::vector<float> values(features.begin(), features.end()), next;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const DenseLayer& layer = layers[l];
    EXPECT(values.size() == layer.inputs);
    next = layer.biases;
    for (std::size_t i = 0; i < layer.inputs; ++i) {
      const float* row = &layer.weights[i * layer.outputs];
      for (std::size_t o = 0; o < layer.outputs; ++o) next[o] += values[i] * row[o];
    }
    if (l + 1 < layers.size()) {
      for (float& value : next) value = std::max(0.0F, value);
    }
    values.swap(next);
  }
  return values[0];
}

std::vector<double> NetworkMoveScorer::score(const Incumbent& from,
                                             std::span<const DrawnMove> moves) {
  const std::size_t width = move_feature_count();
  const std::vector<float> rows = move_features(estimates_, from, moves);
  std::vector<double> scores;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    scores.push_back((*network_)({&rows[i * width], width}));
  }
  return scores;
}

}  // namespace heterog::planner

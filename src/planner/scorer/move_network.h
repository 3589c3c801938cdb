// A small network that scores moves by their features, without LibTorch.
#pragma once

#include <memory>
#include <vector>

#include "planner/move_scorer.h"
#include "planner/scorer/move_estimates.h"

namespace heterog::planner {

// outputs = weights · inputs + biases.
struct DenseLayer {
  std::size_t inputs = 0, outputs = 0;
  std::vector<float> weights;  // [input][output]: so that a row of outputs is summed at once
  std::vector<float> biases;
};

// Layers one after another, with max(0, x) between them; the last has one output.
struct MoveNetwork {
  std::vector<DenseLayer> layers;
  // Sums in the order of the inputs: the same bits whoever asks.
  float operator()(std::span<const float> features) const;
};

class NetworkMoveScorer final : public MoveScorer {
 public:
  NetworkMoveScorer(const cost::Problem& problem, std::shared_ptr<const MoveNetwork> network)
      : estimates_(problem), network_(std::move(network)) {}
  std::vector<double> score(const Incumbent& from, std::span<const DrawnMove> moves) override;

 private:
  MoveEstimates estimates_;
  std::shared_ptr<const MoveNetwork> network_;
};

}  // namespace heterog::planner

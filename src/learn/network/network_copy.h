// A network elsewhere than the learner's own: passes on a GPU, everything else on the CPU.
#pragma once

#include <torch/types.h>

#include "learn/network/network.h"

namespace heterog::learn {

// The learner, its optimizer, gradients that ranks tell each other, and checkpoints stay on the
// CPU: they are small beside what a pass computes, and the same code with and without a GPU.
class NetworkCopy {
 public:
  NetworkCopy(const TrainConfig& config, torch::Device device);
  // The copy, with the weights that `network` has now.
  PolicyNetwork with_weights_of(const PolicyNetwork& network);

 private:
  PolicyNetwork network_;
};

// Those of the same name; others stay as they are.
void copy_weights(const PolicyNetwork& from, const PolicyNetwork& to);

// What a network says, on the CPU, wherever it is.
Said say(PolicyNetwork network, const learn::FeatureTensors& features);

}  // namespace heterog::learn

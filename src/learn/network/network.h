// The whole policy network: encoder, Transformer-XL, action head (HeteroG Fig. 6).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <mutex>
#include <optional>

#include "learn/config.h"
#include "learn/network/action_head.h"
#include "learn/network/encoder.h"
#include "learn/network/formula_head.h"
#include "learn/network/transformer_xl.h"
#include "tensors/seeded_generator.h"

namespace heterog::learn {

// What one pass says of a problem: by the heads that decide every group by itself, or by the
// formula's.
struct Said {
  torch::Tensor log_probabilities;       // log π(a_n) of every group, −1e9 where masked.  [N, A]
  std::optional<FormulaOutput> formula;  // in its place
};

class PolicyNetworkImpl : public torch::nn::Module {
 public:
  explicit PolicyNetworkImpl(const TrainConfig& config);
  Said forward(const learn::FeatureTensors& features);

 private:
  std::int64_t fixed_devices_ = 0;  // 0: the head that reads device features
  learn::GraphEncoder encoder_;
  torch::nn::Linear group_;   // group embedding and group features → Transformer-XL
  torch::nn::Linear device_;  // the cluster's mean device features, added to every group
  TransformerXl transformer_;
  DeviceHead device_head_{nullptr};
  FixedHead fixed_head_{nullptr};
  FormulaHead formula_head_{nullptr};
};
TORCH_MODULE(PolicyNetwork);

// While it lives, initialisers draw from this seed. They use LibTorch's default generator, which is
// used for nothing else, and by one at a time: ranks and planners may be threads.
class SeededWeights {
 public:
  explicit SeededWeights(std::uint64_t seed);

 private:
  std::lock_guard<std::mutex> lock_;
  tensors::SeededGenerator seeded_;
};

// A network with weights drawn from `seed` alone.
PolicyNetwork make_network(const TrainConfig& config, std::uint64_t seed);

// The network and every tensor operation run on one thread, so that sums are always in one order.
void use_one_network_thread();

}  // namespace heterog::learn

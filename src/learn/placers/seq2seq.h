// A sequence of groups to a sequence of devices: LSTM, attention, LSTM.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "learn/placers/placer.h"

namespace heterog::learn {

// The decoder reads the device of the group before, and attends to all groups (Luong et al. 2015),
// so that a device depends on those of earlier groups (Mirhoseini et al. 2017, §3).
class Seq2SeqImpl : public torch::nn::Module {
 public:
  Seq2SeqImpl(std::int64_t features, std::int64_t devices);
  // groups [L, B, features], B = 1 (the same for all samples) or `samples` → [samples, L] int64
  torch::Tensor draw(const torch::Tensor& groups, std::int64_t samples, const Rng& rng);
  // log π of every device of the draws, given those before it.  [S, L]
  Likelihood likelihood(const torch::Tensor& groups, const torch::Tensor& draws);

 private:
  // h [T, S, width], encoded [L, S, width] → log-probabilities [T, S, M]
  torch::Tensor devices_of(const torch::Tensor& h, const torch::Tensor& encoded);

  std::int64_t devices_;
  torch::nn::LSTM encoder_;
  torch::nn::Embedding device_;  // M, and one for "none yet"
  torch::nn::LSTM decoder_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Seq2Seq);

}  // namespace heterog::learn

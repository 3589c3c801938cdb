// Scores of (group, row) pairs by what the group, the devices and the pair are like.
#include "learn/network/pair_scorer.h"

#include <torch/torch.h>

namespace heterog::learn {

void begin_at(torch::nn::Linear& linear, double scale) {
  torch::NoGradGuard no_grad;
  linear->weight.mul_(scale);
  linear->bias.zero_();
}

PairScorerImpl::PairScorerImpl(std::int64_t group_width, std::int64_t width, double scale)
    : group_(register_module("group", torch::nn::Linear(group_width, width))),
      device_(register_module("device", torch::nn::Linear(feature_count(Subject::kDevice), width))),
      pair_(register_module("pair", torch::nn::Linear(feature_count(Subject::kAction), width))),
      score_(register_module("score", torch::nn::Linear(width, 1))),
      schemes_(register_parameter("schemes", 0.1 * torch::randn({kSchemes, width}))) {
  begin_at(score_, scale);
}

torch::Tensor PairScorerImpl::forward(const torch::Tensor& groups, const FeatureTensors& features) {
  const auto rows = features.members.matmul(device_(features.devices)) +
                    schemes_.index_select(0, features.scheme);  // [A, width]
  const auto hidden = torch::elu(group_(groups).unsqueeze(1) + rows.unsqueeze(0) +
                                 pair_(features.actions));  // [N, A, width]
  return score_(hidden).squeeze(-1);
}

}  // namespace heterog::learn

// GDP (Zhou et al. 2019): an embedding of the graph, attention over the sequence of groups, a
// device each; PPO. The embedding is the policy's graph attention, where the paper has GraphSAGE.
#include <torch/torch.h>

#include "learn/network/encoder.h"
#include "learn/network/transformer_xl.h"
#include "learn/placers/placer.h"

namespace heterog::learn {
namespace {

constexpr std::int64_t kHeads = 4, kHeadWidth = 16, kGdpWidth = 64;

class Gdp final : public FactoredPlacer {
 public:
  explicit Gdp(const FeatureTensors& features)
      : features_(features),
        encoder_(register_module(
            "encoder", GraphEncoder(GraphEncoderOptions{.op_features = features.ops.size(1),
                                                        .layers = 2,
                                                        .heads = kHeads,
                                                        .head_width = kHeadWidth}))),
        group_(register_module(
            "group", torch::nn::Linear(kHeads * kHeadWidth + features.groups.size(1), kGdpWidth))),
        transformer_(register_module(
            "transformer", TransformerXl(TransformerXlOptions{.layers = 2,
                                                              .width = kGdpWidth,
                                                              .heads = kHeads,
                                                              .inner_width = 2 * kGdpWidth,
                                                              .segment = 64,
                                                              .memory = 64}))),
        head_(register_module("head", torch::nn::Linear(kGdpWidth, features.devices.size(0)))) {}
  Rule rule() const override { return {.learning_rate = 1e-3, .epochs = 4, .clip = 0.2}; }
  torch::Tensor log_probabilities() override {
    const auto embedding = encoder_->encode_groups(encoder_->encode_ops(features_), features_);
    const auto sequence = group_(torch::cat({embedding, features_.groups}, 1));
    return torch::log_softmax(head_(transformer_(sequence)), 1);
  }

 private:
  FeatureTensors features_;
  GraphEncoder encoder_;
  torch::nn::Linear group_;
  TransformerXl transformer_;
  torch::nn::Linear head_;
};

}  // namespace

std::unique_ptr<Placer> make_gdp(const FeatureTensors& features) {
  return std::make_unique<Gdp>(features);
}

}  // namespace heterog::learn

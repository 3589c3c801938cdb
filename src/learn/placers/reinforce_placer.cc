// Mirhoseini et al. 2017: groups in, devices out, by REINFORCE.
#include <torch/torch.h>

#include "learn/placers/placer.h"
#include "learn/placers/seq2seq.h"

namespace heterog::learn {
namespace {

class Reinforce final : public Placer {
 public:
  explicit Reinforce(const FeatureTensors& features)
      : groups_(features.groups.unsqueeze(1)),
        network_(register_module("network",
                                 Seq2Seq(features.groups.size(1), features.devices.size(0)))) {}
  Rule rule() const override { return {.learning_rate = 3e-3}; }
  torch::Tensor draw(std::int64_t samples, const Rng& rng) override {
    return network_->draw(groups_, samples, rng);
  }
  Likelihood likelihood(const torch::Tensor& draws) override {
    return network_->likelihood(groups_, draws);
  }

 private:
  torch::Tensor groups_;  // [N, 1, group features]
  Seq2Seq network_;
};

}  // namespace

std::unique_ptr<Placer> make_reinforce(const FeatureTensors& features) {
  return std::make_unique<Reinforce>(features);
}

}  // namespace heterog::learn

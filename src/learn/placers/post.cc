// Post (Gao et al. 2018): a distribution over devices a group, without a network; PPO after every
// round, cross-entropy minimisation after every ten.
#include <torch/torch.h>

#include "learn/placers/placer.h"

namespace heterog::learn {
namespace {

// Of the elite's frequencies, in place of what was; what is left keeps every device possible.
constexpr double kSmoothing = 0.7;
constexpr double kLeastProbability = 1e-4;

class Post final : public FactoredPlacer {
 public:
  Post(std::int64_t units, std::int64_t devices)
      : logits_(register_parameter("logits", torch::zeros({units, devices}))) {}
  Rule rule() const override {
    return {.learning_rate = 0.1, .epochs = 4, .clip = 0.2, .imitate_every = 10};
  }
  torch::Tensor log_probabilities() override { return torch::log_softmax(logits_, 1); }
  // The distributions of least cross-entropy to the draws are their frequencies.
  void imitate(const torch::Tensor& draws) override {
    torch::NoGradGuard no_grad;
    const auto frequency = torch::one_hot(draws, logits_.size(1)).to(torch::kFloat32).mean(0);
    const auto mixed =
        kSmoothing * frequency + (1 - kSmoothing) * torch::softmax(logits_, 1);  // [N, M]
    logits_.copy_(mixed.clamp_min(kLeastProbability).log());
  }

 private:
  torch::Tensor logits_;  // [N, M]
};

}  // namespace

std::unique_ptr<Placer> make_post(std::int64_t units, std::int64_t devices) {
  return std::make_unique<Post>(units, devices);
}

}  // namespace heterog::learn

// Mirhoseini et al. 2018: a grouper puts units into groups, a placer groups on devices; both learn
// by REINFORCE from the same steps.
#include <torch/torch.h>

#include "learn/placers/placer.h"
#include "learn/placers/seq2seq.h"

namespace heterog::learn {
namespace {

constexpr std::int64_t kGrouperWidth = 64;

// A row of draws: the group of each unit, then the device of each group.
class Hrl final : public Placer {
 public:
  Hrl(const FeatureTensors& features, std::int64_t groups)
      : units_(features.groups),
        count_(groups),
        hidden_(register_module("hidden", torch::nn::Linear(units_.size(1), kGrouperWidth))),
        grouper_(register_module("grouper", torch::nn::Linear(kGrouperWidth, groups))),
        placer_(register_module("placer", Seq2Seq(units_.size(1) + 1, features.devices.size(0)))) {}
  Rule rule() const override { return {.learning_rate = 3e-3}; }

  torch::Tensor draw(std::int64_t samples, const Rng& rng) override {
    torch::NoGradGuard no_grad;
    const auto log_p = groups_of().to(torch::kFloat64).contiguous();
    auto grouping = torch::empty({samples, units_.size(0)}, torch::kInt64);
    for (std::int64_t s = 0; s < samples; ++s) {
      Rng one = rng.split(0).split(static_cast<std::uint64_t>(s));
      for (std::int64_t n = 0; n < units_.size(0); ++n) {
        grouping.data_ptr<std::int64_t>()[s * units_.size(0) + n] =
            drawn(log_p.data_ptr<double>() + n * count_, count_, one.uniform());
      }
    }
    return torch::cat({grouping, placer_->draw(embedded(grouping), samples, rng.split(1))}, 1);
  }

  Likelihood likelihood(const torch::Tensor& draws) override {
    const std::int64_t units = units_.size(0), all = units + count_;
    const auto grouping = draws.narrow(1, 0, units), placed = draws.narrow(1, units, count_);
    const auto log_p = groups_of();
    const Likelihood of_placer = placer_->likelihood(embedded(grouping), placed);
    // So that both halves count alike in a mean over all decisions.
    const double weight = static_cast<double>(all) / 2;
    return {.log_p = torch::cat(
                {log_p.gather(1, grouping.t()).t() * (weight / static_cast<double>(units)),
                 of_placer.log_p * (weight / static_cast<double>(count_))},
                1),
            .entropy = (-(log_p.exp() * log_p).sum(1).mean() + of_placer.entropy) / 2};
  }

  std::vector<DeviceId> devices(const torch::Tensor& row) const override {
    const std::int64_t units = units_.size(0);
    return Placer::devices(row.narrow(0, units, count_).gather(0, row.narrow(0, 0, units)));
  }

 private:
  torch::Tensor groups_of() {
    return torch::log_softmax(grouper_(torch::relu(hidden_(units_))), 1);  // [N, G]
  }
  // The mean of the units of each group, and how many they are.  [S, N] → [G, S, features + 1]
  torch::Tensor embedded(const torch::Tensor& grouping) const {
    const auto member = torch::one_hot(grouping, count_).to(torch::kFloat32).transpose(1, 2);
    const auto count = member.sum(2, /*keepdim=*/true);  // [S, G, 1]
    const auto mean = torch::matmul(member, units_) / count.clamp_min(1);
    return torch::cat({mean, torch::log1p(count) / 5}, 2).transpose(0, 1);
  }

  torch::Tensor units_;  // [N, group features]
  std::int64_t count_;
  torch::nn::Linear hidden_, grouper_;
  Seq2Seq placer_;
};

}  // namespace

std::unique_ptr<Placer> make_hrl(const FeatureTensors& features, std::int64_t groups) {
  return std::make_unique<Hrl>(features, groups);
}

}  // namespace heterog::learn

// Draws of independent decisions.
#include "learn/placers/placer.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "learn/drawing/rollout.h"

namespace heterog::learn {

std::vector<DeviceId> Placer::devices(const torch::Tensor& row) const {
  const auto on_cpu = row.contiguous();
  const std::int64_t* device = on_cpu.data_ptr<std::int64_t>();
  std::vector<DeviceId> devices;
  for (std::int64_t n = 0; n < on_cpu.size(0); ++n) {
    devices.emplace_back(static_cast<std::size_t>(device[n]));
  }
  return devices;
}

void Placer::imitate(const torch::Tensor&) { EXPECT(false); }

torch::Tensor FactoredPlacer::draw(std::int64_t samples, const Rng& rng) {
  torch::NoGradGuard no_grad;
  return to_tensor(sample_actions(log_probabilities(), samples, rng));
}

Likelihood FactoredPlacer::likelihood(const torch::Tensor& draws) {
  const auto log_p = log_probabilities();
  return {.log_p = log_p.gather(1, draws.t()).t(), .entropy = -(log_p.exp() * log_p).sum(1).mean()};
}

std::int64_t drawn(const double* log_probabilities, std::int64_t count, double u) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += std::exp(log_probabilities[i]);
  double left = u * total;
  for (std::int64_t i = 0; i < count; ++i) {
    left -= std::exp(log_probabilities[i]);
    if (left < 0) return i;
  }
  return count - 1;
}

}  // namespace heterog::learn

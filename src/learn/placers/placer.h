// What draws placements: a distribution that learns.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "cluster/cluster.h"
#include "learn/network/encoder.h"

namespace heterog::learn {

// How likely draws are.
struct Likelihood {
  torch::Tensor log_p;    // [S, K], of each of the K decisions of a draw
  torch::Tensor entropy;  // scalar, nats a decision
};

// How a placer learns from a round.
struct Rule {
  double learning_rate = 1e-3;
  int epochs = 1;  // gradient steps
  // PPO (Schulman et al. 2017): ratios of a decision's probability are cut at 1 ± clip. 0:
  // REINFORCE, which is one epoch.
  double clip = 0;
  // Rounds after which the best tenth of their draws is imitated (cross-entropy); 0: never.
  int imitate_every = 0;
};

class Placer : public torch::nn::Module {
 public:
  virtual Rule rule() const = 0;
  // Draw s depends on (weights, rng.split(s)) alone.  [samples, K] int64
  virtual torch::Tensor draw(std::int64_t samples, const Rng& rng) = 0;
  virtual Likelihood likelihood(const torch::Tensor& draws) = 0;
  // Where a row of draws has the units that are placed.
  virtual std::vector<DeviceId> devices(const torch::Tensor& row) const;
  // Makes such draws likely at once. Of placers whose rule says when.
  virtual void imitate(const torch::Tensor& draws);
};

// One whose decisions are a device each, drawn apart from each other.
class FactoredPlacer : public Placer {
 public:
  virtual torch::Tensor log_probabilities() = 0;  // [N, M]
  torch::Tensor draw(std::int64_t samples, const Rng& rng) override;
  Likelihood likelihood(const torch::Tensor& draws) override;
};

// The features of N units on M devices.
std::unique_ptr<Placer> make_post(std::int64_t units, std::int64_t devices);
std::unique_ptr<Placer> make_gdp(const FeatureTensors& features);
std::unique_ptr<Placer> make_reinforce(const FeatureTensors& features);
// Units are put into at most so many groups, which are placed.
std::unique_ptr<Placer> make_hrl(const FeatureTensors& features, std::int64_t groups);

// By inverting the cumulative distribution at `u` in [0, 1), of a row of log-probabilities.
std::int64_t drawn(const double* log_probabilities, std::int64_t count, double u);

}  // namespace heterog::learn

// Everything that learning changes, and one step of it; pretraining and fine-tuning share it.
#pragma once

#include <torch/optim/adam.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "policy/api.h"
#include "policy/case.h"
#include "policy/network.h"

namespace heterog::policy {

// The complete state: a checkpoint is this, and nothing else is needed to go on to the same bits.
// Random numbers are functions of (seed, step, case, sample), so there is no generator to keep.
struct Learner {
  explicit Learner(const TrainConfig& config);

  TrainConfig config;
  PolicyNetwork network;
  torch::optim::Adam optimizer;
  std::vector<CaseState> states;  // one a case
  std::int64_t step = 0;          // finished steps
  std::int64_t evaluations = 0;
};

// What the loop needs but does not learn.
struct LearningContext {
  std::span<const Case> cases;
  Measure measure;
  // The lessons of those cases, which have not been asked for yet. Empty where nobody teaches.
  std::function<std::vector<std::optional<Lesson>>(std::span<const std::size_t> cases)> teach = {};
};

// The best strategies of a case that are remembered: at least one, even if none is imitated.
std::size_t elites_kept(const TrainConfig& config);

// Cases of a step: every case once before any comes again, in an order drawn anew each time.
std::vector<std::size_t> cases_of_step(const TrainConfig& config, std::size_t cases,
                                       std::int64_t step);

// sample → evaluate → advantage → loss → step → log.
TrainProgress learn_step(Learner& learner, const LearningContext& context, double entropy_weight);

}  // namespace heterog::policy

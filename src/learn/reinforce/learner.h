// Everything that learning changes, and one step of it; pretraining and fine-tuning share it.
#pragma once

#include <torch/optim/adam.h>

#include <cstdint>
#include <span>
#include <vector>

#include "learn/api.h"
#include "learn/network/network.h"
#include "learn/network/network_copy.h"
#include "learn/reinforce/cases.h"
#include "learn/reinforce/team.h"

namespace heterog::learn {

// The complete state: a checkpoint is this, and nothing else is needed to go on to the same bits.
// Random numbers are functions of (seed, step, case, sample), so there is no generator to keep.
struct Learner {
  explicit Learner(const TrainConfig& config);

  TrainConfig config;
  PolicyNetwork network;
  torch::optim::Adam optimizer;
  std::vector<CaseState> states;    // one a case
  std::vector<torch::Tensor> mean;  // of weights, one a parameter; empty: of no step yet
  std::int64_t step = 0;            // finished steps
  std::int64_t evaluations = 0;
};

// How strategies are drawn (learn/drawing/draws.h).
enum class DrawnBy : std::uint8_t {
  kGroups,        // each group by itself: in pretraining
  kRunsAndEdits,  // half as runs of neighbours, half as edits of the best so far: in fine-tuning
};

// Input of the training loop.
struct LearningContext {
  Cases& cases;
  Measure measure;  // all ranks': the same answers to the same strategies
  DrawnBy draws = DrawnBy::kGroups;
  double entropy_floor = 0;  // nats a group; 0: none
  Team& team = alone();
  NetworkCopy* copy = nullptr;  // that makes the passes; null: the learner's own network
};

// Cases of a step: every case once before any comes again, in an order drawn anew each time.
std::vector<std::size_t> cases_of_step(const TrainConfig& config, std::size_t cases,
                                       std::int64_t step);

// draw → simulate → advantage → loss → step.
//
// All ranks of a team call it alike, and end with the same bits, which do not depend on their
// number: the positions of a step are dealt out, as many at a time as there are ranks. The owner of
// a position makes the forward pass, draws its samples, and, once all ranks together have simulated
// those, makes the backward pass; everybody adds up the gradients in the order of positions.
// Throws an Error (kVerification) that names step and case where a loss or a gradient is no finite
// number; the state is not to be used then.
TrainProgress learn_step(Learner& learner, const LearningContext& context, double entropy_weight);

// The step behind which weights are averaged (TrainConfig::averaged_steps).
std::int64_t averaged_behind(const TrainConfig& config);
// Takes the weights into their mean, if the last step is one of those that are averaged.
void note_weights(Learner& learner);

}  // namespace heterog::learn

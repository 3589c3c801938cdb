// Simulations and forward passes of a step, dealt out to the ranks that train together.
#pragma once

#include <span>
#include <vector>

#include "learn/reinforce/case.h"
#include "learn/reinforce/team.h"

namespace heterog::learn {

// Strategies of a case that are to be simulated.
struct Asked {
  const Case* of = nullptr;
  std::vector<Actions> strategies;
};
// Evaluations of each case's strategies, parallel to these. All ranks ask the same. The strategies
// are counted through, and each goes to the rank whose turn it is, so that every rank gets some of
// every case: cases take times that are far apart.
std::vector<std::vector<search::Evaluation>> evaluate_together(Team& team, const Measure& measure,
                                                               std::span<const Asked> asked);

// The gradient of one loss, apart from those of others: added up in a fixed order, they make the
// same bits whoever has computed which.
struct Gradient {
  std::vector<bool> present;  // one a parameter: whether the loss depends on it
  torch::Tensor values;       // those of such parameters, one after another
};
// `loss` is a scalar. On the CPU, wherever the parameters are.
Gradient gradient_of(const torch::Tensor& loss, const std::vector<torch::Tensor>& parameters);
// To the gradients that the parameters have, as backward() would.
void add_gradient(const Gradient& gradient, const std::vector<torch::Tensor>& parameters);

// The loss of one position of a step, with its gradient.
struct PositionLoss {
  double loss = 0;
  double entropy = 0;  // nats a group
  Gradient gradient;   // of its part of the step's loss
};
// The losses of the first `count` ranks, which have one each, in their order. `own`: null on the
// others.
std::vector<PositionLoss> gather_losses(Team& team, std::size_t count, const PositionLoss* own,
                                        const std::vector<torch::Tensor>& parameters);

// What the first ranks have drawn, one entry of `drawn` each, of which a rank has filled in its
// own: fills in the others. All are of `samples` strategies; `groups`: of the case of each entry.
void gather_samples(Team& team, std::span<const std::size_t> groups, std::size_t samples,
                    std::span<std::vector<Actions>> drawn);

}  // namespace heterog::learn

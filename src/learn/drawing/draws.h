// Draws of a training step: how strategies of a case are drawn, and how likely the network found
// them.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "learn/drawing/rollout.h"

namespace heterog::learn {

// Groups [begin, end) that take one action together, drawn from the mean of what the network says
// of each: log π(stretch) = log mean over its groups n of π_n(action). Where it begins and ends is
// drawn without the network, so that ∇ log π is that of the action alone.
struct DrawnRun {
  std::size_t begin = 0;
  std::size_t end = 0;
  space::ActionId action;
  friend bool operator==(const DrawnRun&, const DrawnRun&) = default;
};

// Strategies, and what was drawn of each.
struct Draws {
  std::vector<Actions> actions;  // S
  // S, or empty: every group was drawn by itself. Groups outside of all stretches were not drawn.
  std::vector<std::vector<DrawnRun>> stretches = {};
};

// Strategy s depends on (rng, s) alone.  log_probabilities [N, A]
//
// Every group lies in a stretch. Their number is drawn first, 1 to N, each power of two as likely
// as the next: neighbours agree in coarse strategies and do not in fine ones, where draws group by
// group are all fine.
Draws draw_runs(const torch::Tensor& log_probabilities, std::int64_t samples, const Rng& rng);
// `incumbent`, but for one stretch, of 1 to N groups, each power of two as likely as the next. What
// a strategy is better than the incumbent by is then owed to that stretch alone.
Draws draw_edits(const torch::Tensor& log_probabilities, const Actions& incumbent,
                 std::int64_t samples, const Rng& rng);

// `more` after `draws`; both have stretches.
void append(Draws& draws, Draws more);

// log π of each draw's actions: the mean over its stretches, 0 without any, or over its groups. [S]
torch::Tensor log_likelihood(const torch::Tensor& log_probabilities, const Draws& draws);

}  // namespace heterog::learn

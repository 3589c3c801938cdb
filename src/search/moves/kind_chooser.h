// Which kind of move to try next.
#pragma once

#include <algorithm>
#include <array>

#include "search/moves/moves.h"

namespace heterog::search {

// Draws kinds of move in proportion to how often they helped lately.
class KindChooser {
 public:
  // `in_stages`: begins with what moves stages and turns. `together`: kMovesTogether alone.
  explicit KindChooser(bool in_stages = false, bool together = false) {
    weights_.fill(together ? 0 : 1);
    if (together) {
      for (MoveKind kind : kMovesTogether) of(kind) = 1;
      return;
    }
    if (!in_stages) return;
    for (MoveKind kind : {MoveKind::kRun, MoveKind::kAlike, MoveKind::kHeaviest, MoveKind::kSync,
                          MoveKind::kRecompute}) {
      of(kind) = 0.25;
    }
    of(MoveKind::kBoundary) = 4;
    of(MoveKind::kSchedule) = 2;
  }
  MoveKind draw(Rng& rng) const {
    double total = 0;
    for (double weight : weights_) total += weight;
    double point = rng.uniform() * total;
    for (int kind = 0; kind < kMoveKindCount; ++kind) {
      if ((point -= weights_[kind]) < 0) return static_cast<MoveKind>(kind);
    }
    return static_cast<MoveKind>(kMoveKindCount - 1);
  }
  void learn(MoveKind kind, bool helped) {
    double& weight = of(kind);
    weight = std::clamp(helped ? weight * 1.5 : weight * 0.97, 0.25, 4.0);
  }

 private:
  double& of(MoveKind kind) { return weights_[static_cast<std::size_t>(kind)]; }
  std::array<double, kMoveKindCount> weights_;
};

}  // namespace heterog::search

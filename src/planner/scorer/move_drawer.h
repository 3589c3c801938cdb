// Which moves a search simulates next: drawn blindly, or by a scorer from more that were drawn so.
#pragma once

#include <set>
#include <vector>

#include "planner/kind_chooser.h"
#include "planner/move_scorer.h"

namespace heterog::planner {

// With a scorer, `drawn` times as many moves are drawn blindly as are asked for. Those that are
// given are drawn from them by score or evenly: in proportion to how often either has helped
// lately, and at least a fifth evenly, so that no scorer can lock anything out, nor do much harm
// where it knows nothing. Moves that were given before from this incumbent are left out.
class MoveDrawer {
 public:
  MoveDrawer(const cost::Problem& problem, MoveScorer* scorer, std::int64_t drawn)
      : maker_(problem), scorer_(scorer), drawn_(drawn) {}
  // Moves from another incumbent than until now.
  void begin() { given_.clear(); }
  // At least one, and `count` of them but for moves that were given before; those drawn by score
  // come first. `sharpness` is what scores count: 1 as they are, 0 not at all.
  std::vector<DrawnMove> draw(const Incumbent& from, const KindChooser& kinds, std::size_t count,
                              Rng& rng, double sharpness = 1);
  // Whether the i-th move of the last draw has helped.
  void learn(std::size_t i, bool helped);

 private:
  DrawnMove draw_one(const Incumbent& from, const KindChooser& kinds, Rng& rng) const;

  MoveMaker maker_;
  MoveScorer* scorer_;
  std::int64_t drawn_;
  std::set<std::uint64_t> given_;  // hashes, of moves from the incumbent
  // How often moves have helped lately that were drawn by score, and evenly.
  double by_score_ = 0.1, evenly_ = 0.05;
  std::size_t scored_ = 0;  // moves of the last draw that were drawn by score
};

}  // namespace heterog::planner

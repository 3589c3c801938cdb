// Which moves a search simulates next: drawn blindly, or by a scorer from more that were drawn so.
#pragma once

#include <set>
#include <vector>

#include "planner/kind_chooser.h"
#include "planner/move_scorer.h"

namespace heterog::planner {

// With a scorer, `drawn` times as many moves are drawn blindly as are asked for. At least a fifth
// of those that are given are drawn from them evenly, so that no scorer can lock anything out; the
// others by score, and moves that were given before from this incumbent are left out. Those drawn
// by score come first.
class MoveDrawer {
 public:
  MoveDrawer(const cost::Problem& problem, MoveScorer* scorer, std::int64_t drawn)
      : maker_(problem), scorer_(scorer), drawn_(drawn) {}
  // Moves from another incumbent than until now.
  void begin() { given_.clear(); }
  // At least one, and `count` of them but for moves that were given before.
  std::vector<DrawnMove> draw(const Incumbent& from, const KindChooser& kinds, std::size_t count,
                              Rng& rng);

 private:
  DrawnMove draw_one(const Incumbent& from, const KindChooser& kinds, Rng& rng) const;

  MoveMaker maker_;
  MoveScorer* scorer_;
  std::int64_t drawn_;
  std::set<std::uint64_t> given_;  // hashes, of moves from the incumbent
};

}  // namespace heterog::planner

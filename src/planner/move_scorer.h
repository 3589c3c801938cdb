// Says of moves, before they are simulated, how likely they are to help.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/moves.h"
#include "planner/options.h"

namespace heterog::planner {

// Of one problem. Searches take it by pointer in their options; without one they simulate every
// move that they draw.
class MoveScorer {
 public:
  virtual ~MoveScorer() = default;
  // Parallel to `moves`: the logarithm of the odds that the move helps, or what grows with it. A
  // search draws among moves in proportion to the exponentials.
  virtual std::vector<double> score(const Incumbent& from, std::span<const DrawnMove> moves) = 0;
};

// Moves that are drawn for each one that is simulated, where there is a scorer.
inline constexpr std::int64_t kDrawnMoves = 4;

// Makes the scorer that a file holds for a problem, which has to outlive it.
using MoveScorerSource = std::function<std::unique_ptr<MoveScorer>(const cost::Problem& problem,
                                                                   const std::string& path)>;

// What planners that search let their users choose.
struct ScorerOptions {
  std::int64_t drawn = kDrawnMoves;
  std::string scorer;  // its file; empty: no scorer
};
template <class Options>
inline constexpr Field<Options> kDrawnField = {
    "drawn", "moves that are drawn for each that is simulated, where there is a scorer",
    IntegerField<Options>{&Options::drawn, {1, 1024}}};
template <class Options>
inline constexpr Field<Options> kScorerField = {"scorer",
                                                "what chooses among moves, made by train --moves",
                                                FileField<Options>{&Options::scorer, "none"}};

inline std::unique_ptr<MoveScorer> make_scorer(const MoveScorerSource& source,
                                               const ScorerOptions& options,
                                               const cost::Problem& problem) {
  if (!source || options.scorer.empty()) return nullptr;
  return source(problem, options.scorer);
}

}  // namespace heterog::planner

// What a scorer of moves sees of one: a table of dimensionless figures, by name, with one version.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "planner/moves.h"
#include "planner/scorer/move_estimates.h"

namespace heterog::planner {

// Counts up whenever the table changes: weights of another version are refused.
inline constexpr int kMoveFeatureVersion = 1;

std::size_t move_feature_count();
std::string_view move_feature_name(std::size_t feature);

// One row a move: those of the table for each, in its order. `estimates` learns of new sets of
// devices. The incumbent's measurements may lack `busy` (oracle::Measured); then it counts as
// estimated.
std::vector<float> move_features(MoveEstimates& estimates, const Incumbent& from,
                                 std::span<const DrawnMove> moves);

}  // namespace heterog::planner

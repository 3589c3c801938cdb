// Files of the scorer of moves: its weights, and the logs that it is fitted to.
#pragma once

#include <string>

#include "planner/scorer/move_network.h"
#include "policy/moves/move_log.h"

namespace heterog::policy {

// Weights and feature version. Written whole or not at all.
void save_moves(const planner::MoveNetwork& network, const std::string& path);
// Throws an input error on a missing or damaged file, and on a feature version other than this
// program's.
planner::MoveNetwork load_moves(const std::string& path);

void save_move_log(const MoveLog& log, const std::string& path);
MoveLog load_move_log(const std::string& path);

}  // namespace heterog::policy

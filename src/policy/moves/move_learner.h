// Fits the scorer of moves to what became of moves.
#pragma once

#include <functional>
#include <vector>

#include "planner/scorer/move_network.h"
#include "policy/moves/move_log.h"

namespace heterog::policy {

struct MoveFit {
  std::vector<std::int64_t> hidden = {32, 32};  // widths
  std::int64_t epochs = 12;
  std::int64_t rows = 512;      // of a step
  double learning_rate = 2e-3;  // at first; it falls linearly to 0
  double weight_decay = 1e-4;
  std::uint64_t seed = 1;
};

// A network whose output is the logarithm of the odds that a move helps, by least cross entropy.
// The same log gives the same bits.
planner::MoveNetwork fit_moves(const MoveLog& log, const MoveFit& fit = {});

// How well a network tells moves that help from others of their round, on a log it was not fitted
// to.
struct MoveSkill {
  double auc = 0;   // that a move that helps is scored above one that does not, ties by half
  double kept = 0;  // of rounds in which a move helps, those where one of the best quarter does
  std::int64_t rounds = 0;  // in which a move helps
};
MoveSkill skill_of(const planner::MoveNetwork& network, const MoveLog& log);

// The rows of the log whose problems' numbers these are.
MoveLog select(const MoveLog& log, const std::function<bool(std::int32_t problem)>& takes);

}  // namespace heterog::policy

// Trains the scorer of moves: logs of searches on the problems of a config, then the fit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "planner/move_scorer.h"
#include "policy/config.h"

namespace heterog::policy {

struct MoveTrainOptions {
  // Receives moves.log (what became of moves) and moves.ckpt (the weights). Made if it is not
  // there.
  std::string out_dir;
  int threads = 1;
  std::string log;  // a moves.log of an earlier run, which is fitted to in place of new searches
  std::function<void(double part)> progress;  // of the searches; may be empty
};

struct MoveTrainSummary {
  std::int64_t problems = 0, moves = 0;
  double helped = 0;         // part of the moves
  double auc = 0, kept = 0;  // MoveSkill on every fifth problem, of a network fitted to the others
  std::string path;          // of the weights
};

// Of the config's random cases, without the models that are left out: `teacher_evaluations` plans
// each, no more than one shot of `plan` takes. The same config gives the same bits whatever the
// number of threads.
MoveTrainSummary train_moves(const TrainConfig& config, const MoveTrainOptions& options);

// Scorers of files that train_moves has written.
planner::MoveScorerSource move_scorers();

}  // namespace heterog::policy

// What became of moves: walks over random problems, with every move that was simulated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "oracle/oracle.h"

namespace heterog::policy {

// Rows are moves. Those of one round are from one incumbent.
struct MoveLog {
  std::vector<std::string> names;    // of the problems, by number
  std::vector<float> features;       // planner::move_features, row after row
  std::vector<float> gains;          // how much shorter the step gets, as a part of it; see gain()
  std::vector<std::int32_t> rounds;  // of each row
  std::vector<std::int32_t> problems;  // of each row
  std::size_t size() const { return gains.size(); }
};

// Of a plan that replaces another: the part by which the step gets shorter. Where neither fits, the
// part by which less memory is missing, or else as where both fit; 1 where only the new one fits,
// −1 where only the old one does.
double gain(const oracle::Evaluation& now, const oracle::Evaluation& next);

// Climbs from several starts of the oracle's problem over so many evaluations, in rounds of 16
// moves drawn as searches draw them, all of which are simulated and logged. Goes on from the best
// or from any that helps, now and then from one that does a little harm.
void log_moves(oracle::Oracle& oracle, std::int64_t evaluations, Rng rng, const std::string& name,
               MoveLog& log);

}  // namespace heterog::policy

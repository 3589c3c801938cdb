// heterog plan --from: a plan for other devices or another batch, carried over and improved.
#pragma once

#include <string>
#include <vector>

#include "decide/strategy.h"
#include "explain/json.h"
#include "search/planner.h"
#include "sim/simulator.h"

namespace heterog::cli {

struct Carried {
  std::string plan;                          // file
  std::vector<decide::Strategy> strategies;  // what it comes to, in one way or more
  // The same where devices have become faster or slower, with shares by their new speeds.
  std::vector<decide::Strategy> by_new_speeds;
  std::string gone;                    // devices that are not there, and what stands for them
  std::vector<std::string> added;      // devices that it did not know
  search::Evaluation evaluation = {};  // of the best of them as it is
  double seconds = 0;  // to carry over and improve, without reading graph and cluster
};

// Throws an input error for a plan of another graph, or one whose devices are all gone.
Carried read_carried(const std::string& path, const cost::Problem& problem);

// search::replan(); with a budget that pays for one shot, then the portfolio, which climbs from
// what that has found too. Fills in `carried.evaluation`.
search::PlannerResult plan_from(search::PlannerContext& context, Carried& carried);

explain::OrderedJson carried_json(const Carried& carried);
std::string carried_text(const Carried& carried, const sim::SimResult& planned);

}  // namespace heterog::cli

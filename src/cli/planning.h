// What follows a decision: report whether it fits, write the files.
#pragma once

#include <string>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "loading/plan_files.h"
#include "sim/simulator.h"

namespace heterog::cli {

using loading::simulate_strategy;

// Chrome trace of the simulated step; nothing if the path is empty.
void write_trace(const std::string& path, const cost::Problem& problem,
                 const sim::Simulated& simulated);

// Throws the error of exit code 3, with what is missing, if the strategy does not fit in memory.
void expect_fit(const cost::Problem& problem, const sim::Simulated& simulated);

// The plan file, with the predictions.
struct PlanFile {
  std::string path;
  std::string planner;
  int max_groups = 2000;
};
void write_plan_file(const PlanFile& file, const cost::Problem& problem,
                     const decide::Strategy& strategy, const sim::Simulated& simulated);

}  // namespace heterog::cli

// compare --cases: planners on many problems, side by side.
#pragma once

#include <string>
#include <vector>

#include "cli/compare/comparison.h"

namespace heterog::cli {

struct CasesOptions {
  std::string cases;  // file: a line a problem, as "vgg19 heterog-8gpu 192"; # begins a comment
  std::string out;    // file: rows as they come, and what is not to be done again; empty: none
  ProblemOptions problem;  // of all; graph, cluster and batch are the lines'
  std::vector<std::string> planners;
  std::string policy;
  BudgetOptions budget;
  std::optional<double> seconds_each;
  HiddenOption hidden;
  CommonOptions common;
};

// Every planner on every problem, `common.threads` at a time, each in one thread. A line that says
// no problem is a row too, and an input error at the end.
int compare_cases(const CasesOptions& options, const Caller& caller);

}  // namespace heterog::cli

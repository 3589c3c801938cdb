// The files that say what is planned and run, and the problem that they describe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "cost/problem.h"

namespace heterog::loading {

struct ProblemOptions {
  std::string graph;
  std::string cluster;
  std::int64_t batch = 0;
  int max_groups = cost::ProblemOptions{}.max_groups;
  std::string collectives = "per-device";
  std::vector<std::string> profiles;  // files; costs of what is not profiled are analytic
};

// Throws an input error if a file makes no sense or the graph needs an operator that LibTorch does
// not have.
std::unique_ptr<const cost::Problem> load_problem(const ProblemOptions& options);
// The same, with the least batch that the graph file is known to hold for.
struct LoadedProblem {
  std::unique_ptr<const cost::Problem> problem;
  std::int64_t smallest_batch = 1;
};
LoadedProblem load_problem_file(const ProblemOptions& options);
// Refuses a batch below that, as they do.
void check_batch(std::int64_t batch, std::int64_t smallest, const std::string& graph);
compiler::CompileOptions compile_options(const ProblemOptions& options);

}  // namespace heterog::loading

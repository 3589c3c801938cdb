// The files that say what is planned and run, and the problem that they describe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "cost/problem.h"
#include "graph/known_batches.h"

namespace heterog::loading {

struct ProblemOptions {
  std::string graph;
  std::string cluster;
  std::int64_t batch = 0;
  int max_groups = cost::ProblemOptions{}.max_groups;
  std::string collectives = "per-device";
  std::string compress = {};          // of gradients (cost::parse_compression); empty: none
  std::vector<std::string> profiles;  // files; costs of what is not profiled are analytic
};

// Throws an input error if a file makes no sense or the graph is none that PyTorch runs
// (check_graph.h).
std::unique_ptr<const cost::Problem> load_problem(const ProblemOptions& options);
// The same, with the batches for which the graph file is known to hold.
struct LoadedProblem {
  std::unique_ptr<const cost::Problem> problem;
  graph::KnownBatches known = {};
};
LoadedProblem load_problem_file(const ProblemOptions& options);
// Refuses another batch, as they do.
void check_batch(std::int64_t batch, const graph::KnownBatches& known, const std::string& graph);
cost::Compression compression_of(const ProblemOptions& options);
compiler::CompileOptions compile_options(const ProblemOptions& options);

}  // namespace heterog::loading

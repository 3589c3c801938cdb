// Options that several verbs share, and the problem that they describe.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "compiler/compile.h"
#include "compiler/strategy.h"
#include "cost/problem.h"
#include "loading/problem_files.h"
#include "planner/planner.h"

namespace heterog::cli {

struct CommonOptions {
  std::uint64_t seed = 0;
  int threads = hardware_threads();
  bool json = false;
};
void add_common(CLI::App& verb, CommonOptions& options);

using loading::compile_options;
using loading::load_problem;
using loading::ProblemOptions;
void add_graph_and_cluster(CLI::App& verb, ProblemOptions& options);
void add_batch(CLI::App& verb, ProblemOptions& options);

struct BudgetOptions {
  std::optional<double> seconds;
  std::optional<std::int64_t> evaluations;
  bool any() const { return seconds || evaluations; }
};
void add_budget(CLI::App& verb, BudgetOptions& options);
// Wall seconds count from now; while it is asked, it reports progress under this title.
planner::Budget start_budget(const BudgetOptions& options, const std::string& title);

}  // namespace heterog::cli

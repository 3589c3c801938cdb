// What compare says of planners: a row for each, and how it comes about.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/hidden.h"
#include "cli/options.h"
#include "cli/output.h"
#include "oracle/oracle.h"

namespace heterog::cli {

// A planner on a problem.
struct ComparedRow {
  std::string name;
  bool baseline = false;
  oracle::Evaluation evaluation{};  // all zero if there is a reason
  double plan_seconds = 0;
  std::int64_t evaluations = 0;
  std::string reason{};  // why it gave no plan; empty: it did
  int code = 0;          // of that reason, as an exit code

  bool planned() const { return reason.empty(); }
  bool feasible() const { return planned() && evaluation.feasible; }
  double step_seconds() const { return to_seconds(evaluation.step); }
};

// The names asked for, and in front of them the baselines, which every speed-up refers to. None
// asked for, or "all": all but those for small problems.
std::vector<std::string> compared_names(const std::vector<std::string>& asked);
bool is_baseline(const std::string& name);

struct PlannerRun {
  std::string name;  // as after --planner
  std::string policy;
  BudgetOptions budget;
  std::optional<double> seconds;  // the most it may take
  std::uint64_t seed = 0;
  HiddenOption hidden{};
};
// Whatever it throws, and that it takes too long, is the row's reason. It is stopped between two
// simulated plans, where `stopped` says so too.
ComparedRow compared(const PlannerRun& run, const cost::Problem& problem, ThreadPool& threads,
                     const compiler::CompileOptions& compiling,
                     const std::function<bool()>& stopped, const Caller& caller);

// A row as in `compare --json`; `speedup` is over the step of the best baseline that fits, null
// where either does not.
OrderedJson row_json(const ComparedRow& row, std::int64_t batch, std::optional<double> base);
std::optional<double> best_baseline(const std::vector<ComparedRow>& rows);

}  // namespace heterog::cli

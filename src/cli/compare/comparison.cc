// Runs a planner and keeps what it comes to.
#include "cli/compare/comparison.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "cli/ending.h"
#include "cli/planner_table.h"
#include "explain/work.h"
#include "oracle/simulated_oracle.h"

namespace heterog::cli {

// Not one with options of its own: it is compared with the one that has none.
bool is_baseline(const std::string& name) {
  const auto entries = planner_registry().entries();
  return std::any_of(entries.begin(), entries.end(), [&](const search::PlannerEntry& entry) {
    return entry.baseline && entry.name == name;
  });
}

std::vector<std::string> compared_names(const std::vector<std::string>& asked) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const bool all = asked.empty() || std::find(asked.begin(), asked.end(), "all") != asked.end();
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    if (entry.baseline) add(std::string(entry.name));
  }
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    if (all && !entry.small_problems) add(std::string(entry.name));
  }
  for (const std::string& name : asked) {
    if (name != "all") add(name);
  }
  return names;
}

ComparedRow compared(const PlannerRun& run, const cost::Problem& problem, ThreadPool& threads,
                     const compiler::CompileOptions& compiling,
                     const std::function<bool()>& stopped, const Caller& caller) {
  ComparedRow row{.name = run.name, .baseline = is_baseline(run.name)};
  const Stopwatch watch;
  const auto too_long = [&] { return run.seconds && watch.seconds() > *run.seconds; };
  const Ending ending = ending_of([&] {
    oracle::SimulatedOracle oracle(problem, threads, compiling,
                                   [&] { return too_long() || stopped(); });
    HiddenRun hidden(run.hidden, problem, threads, compiling,
                     [&] { return too_long() || stopped(); });
    search::PlannerContext context{.oracle = oracle,
                                   .rng = Rng(run.seed),
                                   .budget = start_budget(run.budget, run.name, caller),
                                   .trials = hidden.trials()};
    const search::PlannerResult result =
        find_planner(run.name, *problem.cluster, run.policy)->plan(context);
    row.evaluation = hidden.shown(result.strategy, result.evaluation);
    row.evaluations = result.evaluations;
    return 0;
  });
  row.plan_seconds = watch.seconds();
  row.code = ending.code;
  row.reason = ending.error;
  if (too_long()) {
    row.code = static_cast<int>(ErrorKind::kVerification);
    row.reason = fmt::format("took longer than {:g} s (--seconds-each)", *run.seconds);
  }
  if (!row.planned()) {
    row.evaluation = {};
    row.evaluations = 0;
  }
  return row;
}

OrderedJson row_json(const ComparedRow& row, std::int64_t batch, std::optional<double> base) {
  OrderedJson item = {{"name", row.name},
                      {"baseline", row.baseline},
                      {"step_seconds", nullptr},
                      {"samples_per_second", nullptr},
                      {"feasible", row.feasible()},
                      {"missing_bytes", row.evaluation.missing_bytes},
                      {"plan_seconds", row.plan_seconds},
                      {"evaluations", row.evaluations},
                      {"speedup", nullptr},
                      {"reason", nullptr}};
  if (row.planned()) {
    item["step_seconds"] = row.step_seconds();
    item["samples_per_second"] = explain::samples_per_second(batch, row.evaluation.step);
  } else {
    item["reason"] = row.reason;
  }
  if (base && row.feasible()) item["speedup"] = (*base - row.step_seconds()) / row.step_seconds();
  return item;
}

std::optional<double> best_baseline(const std::vector<ComparedRow>& rows) {
  std::optional<double> base;
  for (const ComparedRow& row : rows) {
    if (row.baseline && row.feasible()) {
      base = std::min(base.value_or(row.step_seconds()), row.step_seconds());
    }
  }
  return base;
}

}  // namespace heterog::cli

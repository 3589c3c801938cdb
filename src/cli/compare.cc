// heterog compare: planners side by side on one problem.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/log.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/progress.h"
#include "cli/stopping.h"
#include "cli/verbs.h"
#include "explain/work.h"
#include "oracle/simulated_oracle.h"

namespace heterog::cli {

namespace {

struct CompareOptions {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::vector<std::string> planners;
  std::string policy;
};

struct Row {
  std::string name;
  bool baseline = false;
  search::PlannerResult result;
  double plan_seconds = 0;
  double step_seconds() const { return to_seconds(result.evaluation.step); }
  bool feasible() const { return result.evaluation.feasible; }
};

// Not one with options of its own: it is compared with the one that has none.
bool is_baseline(const std::string& name) {
  const auto entries = planner_registry().entries();
  return std::any_of(entries.begin(), entries.end(), [&](const search::PlannerEntry& entry) {
    return entry.baseline && entry.name == name;
  });
}

// The names asked for, and in front of them the baselines, which every speed-up refers to.
std::vector<std::string> names_to_run(const std::vector<std::string>& asked) {
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

std::string table_text(const cost::Problem& problem, const std::vector<Row>& rows) {
  std::vector<std::string> header = {"planner",  "step",       "rate", "feasible",
                                     "short of", "planned in", "plans"};
  for (const Row& base : rows) {
    if (base.baseline) header.push_back("vs " + base.name);
  }
  Table table(std::move(header));
  for (const Row& row : rows) {
    std::vector<std::string> cells = {
        row.name,
        milliseconds_text(row.step_seconds()),
        explain::rate_text(problem.batch, row.result.evaluation.step),
        row.feasible() ? "yes" : "no",
        row.feasible() ? "-" : gigabytes_text(row.result.evaluation.missing_bytes),
        fmt::format("{:.2f} s", row.plan_seconds),
        std::to_string(row.result.evaluations)};
    for (const Row& base : rows) {
      if (!base.baseline) continue;
      const bool comparable = base.feasible() && row.feasible() && &base != &row;
      cells.push_back(comparable ? speedup_text(base.step_seconds(), row.step_seconds())
                      : base.feasible() || &base == &row ? "-"
                                                         : "no fit");
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

// `speedup` is over the best feasible baseline; null where either does not fit in memory.
OrderedJson rows_json(const cost::Problem& problem, const std::vector<Row>& rows) {
  std::optional<double> base;
  for (const Row& row : rows) {
    if (row.baseline && row.feasible()) {
      base = std::min(base.value_or(row.step_seconds()), row.step_seconds());
    }
  }
  OrderedJson json;
  json["planners"] = OrderedJson::array();
  for (const Row& row : rows) {
    OrderedJson item = {{"name", row.name},
                        {"baseline", row.baseline},
                        {"step_seconds", row.step_seconds()},
                        {"samples_per_second",
                         explain::samples_per_second(problem.batch, row.result.evaluation.step)},
                        {"feasible", row.feasible()},
                        {"missing_bytes", row.result.evaluation.missing_bytes},
                        {"plan_seconds", row.plan_seconds},
                        {"evaluations", row.result.evaluations},
                        {"speedup", nullptr}};
    if (base && row.feasible()) item["speedup"] = (*base - row.step_seconds()) / row.step_seconds();
    json["planners"].push_back(std::move(item));
  }
  return json;
}

// In their order; less than all of them if it is stopped.
std::vector<Row> run_planners(const CompareOptions& options, const std::vector<std::string>& names,
                              oracle::Oracle& oracle, const Stopping& stopping,
                              const Caller& caller) {
  const cost::Problem& problem = oracle.problem();
  std::vector<Row> rows;
  for (const std::string& name : names) {
    Progress progress(caller, "comparing");
    progress.show(static_cast<double>(rows.size()) / static_cast<double>(names.size()), name);
    const Stopwatch watch;
    search::PlannerContext context{.oracle = oracle,
                                   .rng = Rng(options.common.seed),
                                   .budget = start_budget(options.budget, name, caller)};
    Row row{.name = name, .baseline = is_baseline(name)};
    try {
      row.result = find_planner(name, *problem.cluster, options.policy)->plan(context);
    } catch (const Error&) {
      if (!stopping.asked()) throw;
      break;
    }
    row.plan_seconds = watch.seconds();
    rows.push_back(std::move(row));
  }
  return rows;
}

int run_compare(const CompareOptions& options, const Caller& caller) {
  const auto problem = load_problem(options.problem);
  ThreadPool threads(options.common.threads);
  const std::vector<std::string> names = names_to_run(options.planners);
  // Refuses a wrong name before any long work.
  for (const std::string& name : names) {
    find_planner(name, *problem->cluster, options.policy);
  }
  std::optional<Stopping> stopping(std::in_place, caller);
  oracle::SimulatedOracle oracle(*problem, threads, compile_options(options.problem),
                                 [&] { return stopping->asked(); });
  const Stopwatch watch;
  const std::vector<Row> rows = run_planners(options, names, oracle, *stopping, caller);
  std::string stopped;
  if (rows.size() < names.size()) {
    stopped = fmt::format("{}, in {}, number {} of {}; those before it are compared",
                          stopping->text(watch.seconds()), names[rows.size()], rows.size() + 1,
                          names.size());
  }
  stopping.reset();
  if (options.common.json) {
    print_json(caller, rows_json(*problem, rows));
  } else {
    print(caller, "{} on {}, batch {}\n{}", problem->graph->name(), problem->cluster->name(),
          problem->batch, table_text(*problem, rows));
  }
  if (!stopped.empty()) throw Error(ErrorKind::kVerification, stopped);
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App& verb = *app.add_subcommand("compare", "Sets planners side by side on one problem");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  verb.add_option(
      "--planner", options->planners,
      "Planners to compare with the baselines (default: all but exact), with options as "
      "NAME:option=value,option=value");
  verb.add_option("--policy", options->policy,
                  "Checkpoint of planners with a policy (default: the shipped one)");
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog compare --graph models/vgg19.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --batch 192 --planner local-search portfolio\n"
      "A budget is each planner's. \"vs\" is (baseline - planner) / planner, in step time.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_compare(*options, caller); };
  });
}

}  // namespace heterog::cli

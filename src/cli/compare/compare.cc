// heterog compare: planners side by side, on one problem or on many.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/log.h"
#include "cli/compare/cases.h"
#include "cli/compare/comparison.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/progress.h"
#include "cli/stopping.h"
#include "cli/verbs.h"
#include "explain/work.h"

namespace heterog::cli {

namespace {

std::string table_text(const cost::Problem& problem, const std::vector<ComparedRow>& rows) {
  std::vector<std::string> header = {"planner",  "step",       "rate", "feasible",
                                     "short of", "planned in", "plans"};
  for (const ComparedRow& base : rows) {
    if (base.baseline) header.push_back("vs " + base.name);
  }
  Table table(std::move(header));
  std::string reasons;
  for (const ComparedRow& row : rows) {
    const bool planned = row.planned(), fits = row.feasible();
    std::vector<std::string> cells = {
        row.name,
        planned ? milliseconds_text(row.step_seconds()) : "-",
        planned ? explain::rate_text(problem.batch, row.evaluation.step) : "-",
        fits ? "yes" : "no",
        fits || !planned ? "-" : gigabytes_text(row.evaluation.missing_bytes),
        fmt::format("{:.2f} s", row.plan_seconds),
        std::to_string(row.evaluations)};
    for (const ComparedRow& base : rows) {
      if (!base.baseline) continue;
      const bool comparable = base.feasible() && fits && &base != &row;
      cells.push_back(comparable ? speedup_text(base.step_seconds(), row.step_seconds())
                      : base.feasible() || &base == &row ? "-"
                                                         : "no fit");
    }
    table.add_row(std::move(cells));
    if (!planned) reasons += fmt::format("{}: {}\n", row.name, row.reason);
  }
  return table.text() + reasons;
}

OrderedJson rows_json(const cost::Problem& problem, const std::vector<ComparedRow>& rows) {
  OrderedJson json;
  json["planners"] = OrderedJson::array();
  const std::optional<double> base = best_baseline(rows);
  for (const ComparedRow& row : rows)
    json["planners"].push_back(row_json(row, problem.batch, base));
  return json;
}

// In their order; less than all of them if it is stopped.
std::vector<ComparedRow> run_planners(const CasesOptions& options,
                                      const std::vector<std::string>& names,
                                      const cost::Problem& problem, const Stopping& stopping,
                                      const Caller& caller) {
  ThreadPool threads(options.common.threads);
  std::vector<ComparedRow> rows;
  for (const std::string& name : names) {
    Progress progress(caller, "comparing");
    progress.show(static_cast<double>(rows.size()) / static_cast<double>(names.size()), name);
    ComparedRow row = compared(
        {.name = name,
         .policy = options.policy,
         .budget = options.budget,
         .seconds = options.seconds_each,
         .seed = options.common.seed,
         .hidden = options.hidden},
        problem, threads, compile_options(options.problem), [&] { return stopping.asked(); },
        caller);
    if (stopping.asked() && !row.planned()) break;
    rows.push_back(std::move(row));
  }
  return rows;
}

// Where no planner that was asked for has a plan, there is nothing to compare.
void expect_some_plan(const std::vector<ComparedRow>& rows) {
  const auto failed = [](const ComparedRow& row) { return !row.planned(); };
  const auto first = std::ranges::find_if(rows, failed);
  if (first == rows.end()) return;
  const bool all = std::ranges::all_of(
      rows, [&](const ComparedRow& row) { return row.baseline || failed(row); });
  if (all) throw Error(static_cast<ErrorKind>(first->code), first->reason);
}

int run_compare(const CasesOptions& options, const Caller& caller) {
  if (!options.cases.empty()) return compare_cases(options, caller);
  VALIDATE(options.out.empty(), "--out: given without --cases, whose rows it keeps");
  const auto problem = load_problem(options.problem);
  const std::vector<std::string> names = compared_names(options.planners);
  // Refuses a wrong name before any long work.
  for (const std::string& name : names) {
    find_planner(name, *problem->cluster, options.policy);
  }
  std::optional<Stopping> stopping(std::in_place, caller);
  const Stopwatch watch;
  const std::vector<ComparedRow> rows = run_planners(options, names, *problem, *stopping, caller);
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
  expect_some_plan(rows);
  return 0;
}

// What describes the one problem; --cases has many.
void add_problem(CLI::App& verb, CasesOptions& options) {
  add_graph_and_cluster(verb, options.problem);
  add_batch(verb, options.problem);
  add_compress(verb, options.problem);
  auto* cases = verb.add_option(
      "--cases", options.cases,
      "In place of --graph, --cluster and --batch: a file with a line a problem, as \"vgg19 "
      "heterog-8gpu 192\"; # begins a comment");
  for (const char* name : {"--graph", "--cluster", "--batch"}) {
    cases->excludes(verb.get_option(name)->required(false));
  }
  verb.add_option("--out", options.out,
                  "Of --cases: a file that gets each row as it is known. What it has already is "
                  "not done again");
}

// As CLI11 says it of other verbs.
void expect_problem(const CLI::App& verb) {
  if (verb.count("--cases") > 0) return;
  for (const char* name : {"--graph", "--cluster", "--batch"}) {
    if (verb.count(name) == 0) throw CLI::RequiredError(name);
  }
}

}  // namespace

void add_compare(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CasesOptions>();
  CLI::App& verb = *app.add_subcommand("compare", "Sets planners side by side");
  add_problem(verb, *options);
  verb.add_option(
      "--planner", options->planners,
      "Planners to compare with the baselines (default, and \"all\": all but exact), with options "
      "as NAME:option=value,option=value");
  verb.add_option("--policy", options->policy,
                  "Checkpoint of planners with a policy (default: the shipped one)");
  add_number(verb, "--seconds-each", options->seconds_each, kDurations,
             "A planner that takes longer is stopped, and has no plan");
  add_hidden(verb, options->hidden);
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog compare --graph models/vgg19.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --batch 192 --planner local-search portfolio\n"
      "  heterog compare --cases cases.txt --planner all --seconds-each 60 --out rows.jsonl\n"
      "A budget is each planner's. \"vs\" is (baseline - planner) / planner, in step time. With "
      "--cases, planners run beside each other, in a thread each.");
  verb.callback([options, &chosen, &verb] {
    expect_problem(verb);
    chosen = [options](const Caller& caller) { return run_compare(*options, caller); };
  });
}

}  // namespace heterog::cli

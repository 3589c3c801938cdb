// heterog report: one HTML page that shows plans beside the baselines and needs nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "explain/explanation.h"
#include "explain/html_page.h"
#include "explain/measured_lanes.h"
#include "explain/page_data.h"
#include "explain/simulation.h"
#include "oracle/simulated_oracle.h"
#include "search/pipeline/pipelines.h"

namespace heterog::cli {

namespace {

struct ReportOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::vector<std::string> plans;
  std::vector<std::string> measured;
  std::string out;
};

std::vector<explain::PlannerRow> run_baselines(const ReportOptions& options,
                                               const cost::Problem& problem, const Caller& caller) {
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(problem, threads, compile_options(options.problem),
                                 caller.stopped);
  std::vector<explain::PlannerRow> rows;
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    if (!entry.baseline) continue;
    search::PlannerContext context{.oracle = oracle, .rng = Rng(options.common.seed)};
    const search::Evaluation evaluation =
        entry.make({}, *problem.cluster)->plan(context).evaluation;
    rows.push_back({std::string(entry.name), true, evaluation.step, evaluation.feasible,
                    evaluation.missing_bytes});
  }
  if (std::ranges::any_of(rows, &explain::PlannerRow::feasible)) return rows;
  // As in `plan`: what is done by hand where none of them fits.
  oracle::BatchEvaluator evaluator(oracle);
  const std::vector<search::Tried> tried = search::try_accumulation(evaluator);
  if (tried.empty()) return rows;
  const search::Evaluation& best =
      std::ranges::min_element(tried, search::better, &search::Tried::evaluation)->evaluation;
  rows.push_back({"accumulate", true, best.step, best.feasible, best.missing_bytes});
  return rows;
}

// What stands for a plan on the page: its file's name, whole where two are called alike.
std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    names.push_back(std::filesystem::path(path).filename().string());
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto alike = std::count_if(paths.begin(), paths.end(), [&](const std::string& other) {
      return std::filesystem::path(other).filename() == std::filesystem::path(paths[i]).filename();
    });
    if (alike > 1) names[i] = paths[i];
  }
  return names;
}

int run_report(const ReportOptions& options, const Caller& caller) {
  expect_writable(options.out);
  VALIDATE(options.measured.size() <= options.plans.size(),
           "--measured: {} folders given for {} plans; each belongs to the plan at its place",
           options.measured.size(), options.plans.size());
  const std::vector<std::string> names = short_names(options.plans);
  std::vector<explain::PlannerRow> rows;
  OrderedJson plans = OrderedJson::array();
  std::shared_ptr<const cost::Problem> problem;
  Progress progress(caller, "drawing");
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    progress.show(static_cast<double>(i) / static_cast<double>(options.plans.size()), names[i]);
    const LoadedPlan loaded = load_plan(options.plans[i], options.problem);
    if (!problem) {
      problem = loaded.problem;
      rows = run_baselines(options, *problem, caller);
    }
    VALIDATE(loaded.problem->batch == problem->batch,
             "{} is for batch {}, {} for batch {}: one page shows plans for one batch",
             options.plans[0], problem->batch, options.plans[i], loaded.problem->batch);
    const decide::Strategy& strategy = loaded.record.strategy;
    const explain::Explanation explanation = explain::explain_plan(
        *loaded.problem, strategy, loaded.simulated, compile_options(options.problem));
    explain::DrawnPlan drawn{.name = names[i],
                             .planner = loaded.record.planner,
                             .strategy = strategy,
                             .simulated = loaded.simulated,
                             .explanation = explanation};
    if (i < options.measured.size()) {
      drawn.measured = explain::measured_lanes(options.measured[i], *loaded.problem,
                                               loaded.simulated.plan.task_count());
    }
    plans.push_back(explain::plan_data(*loaded.problem, std::move(drawn)));
    rows.push_back({names[i], false, loaded.simulated.result.step,
                    loaded.simulated.result.feasible(), explain::missing_bytes(loaded.simulated)});
  }
  const std::string page =
      explain::html_page(problem->graph->name() + " on " + problem->cluster->name(),
                         explain::page_data(*problem, rows, std::move(plans)));
  write_file(options.out, page);
  if (options.common.json) {
    print_json(caller,
               {{"out", options.out}, {"bytes", page.size()}, {"plans", options.plans.size()}});
  } else {
    print(caller, "{}: {}, {} plan{}\n", options.out, bytes_text(static_cast<Bytes>(page.size())),
          options.plans.size(), options.plans.size() == 1 ? "" : "s");
  }
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App& verb = *app.add_subcommand("report", "Draws plans as one HTML page");
  add_graph_and_cluster(verb, options->problem);
  add_batch_of_plan(verb, options->problem);
  verb.add_option("--plan", options->plans, "Plan files, the first is shown first")->required();
  verb.add_option("--measured", options->measured,
                  "Folders that heterog run --trace wrote, of the plans at the same places: what "
                  "was measured is drawn below what is predicted");
  verb.add_option("--out", options->out, "HTML file to write")->required();
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog report --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --plan plan.json --out plan.html\n"
      "The page asks for nothing from outside itself: it can be sent as it is.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_report(*options, caller); };
  });
}

}  // namespace heterog::cli

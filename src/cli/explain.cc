// heterog explain: why a plan's step takes as long as it does, and what would shorten it.
#include <fmt/format.h>

#include <memory>

#include "cli/answers/devices_used.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "explain/decisions_json.h"
#include "explain/explanation.h"
#include "explain/explanation_json.h"
#include "explain/explanation_text.h"
#include "explain/gradients.h"
#include "oracle/simulated_oracle.h"

namespace heterog::cli {

namespace {

struct ExplainOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::string plan;
  std::string order;
};

int run_explain(const ExplainOptions& options, const Caller& caller) {
  const LoadedPlan loaded = load_plan(options.plan, options.problem, options.order);
  const cost::Problem& problem = *loaded.problem;
  const decide::Strategy& strategy = loaded.record.strategy;
  const explain::Explanation explanation =
      explain::explain_plan(problem, strategy, loaded.simulated, compile_options(options.problem));
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(problem, threads, compile_options(options.problem),
                                 caller.stopped);
  const DevicesUsed used =
      devices_used(oracle, strategy, loaded.simulated, compile_options(options.problem));
  if (options.common.json) {
    OrderedJson json = {{"graph", problem.graph->name()},
                        {"cluster", problem.cluster->name()},
                        {"batch", problem.batch},
                        {"planner", loaded.record.planner},
                        {"order", decide::order_policy_name(decide::dispatch_order(strategy))}};
    json.update(explain::explanation_json(problem, loaded.simulated, explanation));
    json["decisions"] = explain::decisions_json(problem, strategy);
    if (problem.compression.any()) {
      json["compression"] = cost::compression_text(problem.compression);
    }
    json.update(devices_used_json(problem, used));
    print_json(caller, json);
  } else {
    print(caller, "{} on {}, batch {}, plan of {}, order {}{}: step {}{}\n{}{}",
          problem.graph->name(), problem.cluster->name(), problem.batch, loaded.record.planner,
          decide::order_policy_name(decide::dispatch_order(strategy)),
          explain::compression_words(problem),
          explain::step_text(problem.batch, loaded.simulated.result.step),
          loaded.simulated.result.feasible() ? "" : ", does not fit in memory",
          devices_used_text(problem, loaded.simulated, used),
          explain::explanation_text(problem, loaded.simulated, explanation));
  }
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App& verb =
      *app.add_subcommand("explain", "Says why a plan's step takes as long as it does");
  add_graph_and_cluster(verb, options->problem);
  add_batch_of_plan(verb, options->problem);
  verb.add_option("--plan", options->plan, "Plan file")->required();
  verb.add_option("--order", options->order,
                  fmt::format("{}, in place of the plan's own", decide::kPlainOrders));
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog explain --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --plan plan.json\n"
      "The critical path is read downwards; \"<-\" says why a stretch could not start earlier. "
      "docs/explain.md tells what each figure means.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_explain(*options, caller); };
  });
}

}  // namespace heterog::cli

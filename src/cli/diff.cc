// heterog diff: what two plans for the same problem decide differently, and what comes of it.
#include <fmt/format.h>

#include <memory>

#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "explain/plan_diff.h"

namespace heterog::cli {

namespace {

struct DiffOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::vector<std::string> plans;
};

explain::ComparedPlan side(const std::string& name, const LoadedPlan& loaded) {
  return {.name = name,
          .planner = loaded.record.planner,
          .problem = *loaded.problem,
          .strategy = loaded.record.strategy,
          .simulated = loaded.simulated};
}

int run_diff(const DiffOptions& options, const Caller& caller) {
  const LoadedPlan a = load_plan(options.plans[0], options.problem);
  const LoadedPlan b = load_plan(options.plans[1], options.problem);
  VALIDATE(a.problem->batch == b.problem->batch,
           "{} is for batch {}, {} for batch {}: only plans for one batch can be compared",
           options.plans[0], a.problem->batch, options.plans[1], b.problem->batch);
  const explain::ComparedPlan side_a = side(options.plans[0], a);
  const explain::ComparedPlan side_b = side(options.plans[1], b);
  if (options.common.json) {
    print_json(caller, explain::diff_json(side_a, side_b));
  } else {
    print(caller, "{}", explain::diff_text(side_a, side_b));
  }
  return 0;
}

}  // namespace

void add_diff(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App& verb = *app.add_subcommand("diff", "Says what two plans decide differently");
  add_graph_and_cluster(verb, options->problem);
  verb.add_option("plans", options->plans, "Two plan files, A and B")->required()->expected(2);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog diff --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json before.json after.json\n"
      "Two plans that were made with different numbers of groups are compared by operator.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_diff(*options, caller); };
  });
}

}  // namespace heterog::cli

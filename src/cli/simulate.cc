// heterog simulate: what a plan file does, step by simulated step.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "compiler/check/check_bytes.h"
#include "compiler/plan_text.h"
#include "decide/micro_batches.h"
#include "explain/gradients.h"
#include "explain/simulation.h"
#include "sim/check_timeline.h"

namespace heterog::cli {

namespace {

struct SimulateOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::string plan;
  std::string order;
  std::int64_t accumulate = 1;
  std::string trace;
  std::string dump;
  bool check = false;
};

void write_dump(const std::string& path, const cost::Problem& problem, const compiler::Plan& plan) {
  if (path.empty()) return;
  if (path.ends_with(".dot")) return write_file(path, compiler::plan_dot(plan, problem));
  VALIDATE(path.ends_with(".txt"), "--dump {}: the name ends in .txt or .dot", printable(path));
  write_file(path, compiler::plan_text(plan, problem));
}

// Exit code 4 if the simulated step is not a schedule of the plan, or the plan moves other bytes
// than its strategy says.
void check_step(const cost::Problem& problem, const decide::Strategy& strategy,
                const sim::Simulated& simulated) {
  std::vector<std::string> wrong =
      sim::check_timeline(simulated.plan, simulated.result, decide::dispatch_order(strategy));
  for (std::string& line : compiler::check_bytes(problem, strategy, simulated.plan)) {
    wrong.push_back(std::move(line));
  }
  if (wrong.empty()) return;
  for (const std::string& complaint : wrong) logger().error("{}", complaint);
  throw Error(ErrorKind::kVerification, fmt::format("the simulated step is wrong: {}", wrong[0]));
}

int run_simulate(const SimulateOptions& options, const Caller& caller) {
  LoadedPlan loaded = load_plan(options.plan, options.problem, options.order);
  if (options.accumulate > 1) {
    VALIDATE(options.order.empty(),
             "--order: \"{}\" given beside --accumulate, which orders the plan",
             printable(options.order));
    decide::Strategy& strategy = loaded.record.strategy;
    strategy = decide::accumulate(*loaded.problem, strategy, options.accumulate);
    loaded.simulated =
        loading::simulate_strategy(*loaded.problem, strategy, compile_options(options.problem));
  }
  const auto& [problem, record, simulated, known] = loaded;
  if (options.check) check_step(*problem, record.strategy, simulated);
  write_trace(options.trace, *problem, simulated);
  write_dump(options.dump, *problem, simulated.plan);
  if (options.common.json) {
    OrderedJson json = explain::simulation_json(*problem, simulated);
    if (options.check) json["checked"] = true;
    print_json(caller, json);
  } else {
    print(caller, "{} on {}, batch {}, plan of {}, order {}{}\n{}", problem->graph->name(),
          problem->cluster->name(), problem->batch, record.planner,
          decide::order_policy_name(decide::dispatch_order(record.strategy)),
          explain::compression_words(*problem), explain::simulation_text(*problem, simulated));
    if (options.check)
      print(caller,
            "\nchecked: a schedule of the plan, memory and links add up, bytes as the strategy "
            "says\n");
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App& verb = *app.add_subcommand("simulate", "Predicts step time and memory of a plan");
  add_graph_and_cluster(verb, options->problem);
  verb.add_option("--plan", options->plan, "Plan file")->required();
  verb.add_option("--order", options->order,
                  fmt::format("{}, in place of the plan's own", decide::kPlainOrders));
  add_accumulate(verb, options->accumulate);
  verb.add_option("--trace", options->trace, "Write a Chrome trace of the simulated step");
  verb.add_option("--dump", options->dump, "Write the compiled plan: NAME.txt or NAME.dot");
  verb.add_flag(
      "--check", options->check,
      "Prove the step: no resource runs two tasks, nothing starts early or waits in vain, "
      "memory and links add up");
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog simulate --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --plan plan.json --order fifo "
      "--trace trace.json\nOpen the trace in ui.perfetto.dev or chrome://tracing.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_simulate(*options, caller); };
  });
}

}  // namespace heterog::cli

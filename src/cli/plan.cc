// heterog plan: from a graph and a cluster to a plan file.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/shell.h"
#include "base/text.h"
#include "cli/answers/devices_used.h"
#include "cli/answers/plan_screen.h"
#include "cli/answers/what_fits.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/planning.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "compiler/accumulate.h"
#include "explain/simulation.h"
#include "oracle/simulated_oracle.h"

namespace heterog::cli {

namespace {

struct PlanOptions {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::string out;
  std::string policy;
  bool no_policy = false;
  std::string planner{kPortfolio};
  std::int64_t accumulate = 1;
  int order_rounds = 0;
  std::string trace;
  bool verbose = false;
};

// What the decisions of a plan would take in every order that needs no priorities.
using StepOfOrder = std::vector<std::pair<std::string, Nanoseconds>>;
StepOfOrder steps_of_orders(const cost::Problem& problem, compiler::Strategy strategy,
                            const compiler::CompileOptions& options) {
  StepOfOrder steps;
  strategy.priorities.clear();
  for (compiler::OrderPolicy order : compiler::kSearchedOrders) {
    strategy.order = order;
    const sim::Simulated simulated = simulate_strategy(problem, strategy, options);
    steps.emplace_back(compiler::order_policy_name(order), simulated.result.step);
  }
  return steps;
}

std::string orders_text(const compiler::Strategy& strategy, const StepOfOrder& steps) {
  std::string text =
      fmt::format("order {}; the same plan", compiler::order_policy_name(strategy.order));
  for (const auto& [order, step] : steps) {
    text += fmt::format("{} in order {} {}", &order == &steps.front().first ? "" : ",", order,
                        milliseconds_text(to_seconds(step)));
  }
  return text + "\n";
}

std::string baselines_text(const planner::PlannerResult& result, const sim::SimResult& planned) {
  Table table({"baseline", "step", "feasible", "speed-up over it"});
  for (const auto& baseline : result.baselines) {
    const bool comparable = baseline.evaluation.feasible && planned.feasible();
    table.add_row(
        {baseline.name, milliseconds_text(to_seconds(baseline.evaluation.step)),
         baseline.evaluation.feasible ? "yes" : "no",
         comparable ? speedup_text(to_seconds(baseline.evaluation.step), to_seconds(planned.step))
                    : "-"});
  }
  return table.text();
}

// What --verbose adds.
std::string tables_text(const cost::Problem& problem, const planner::PlannerResult& found,
                        const sim::Simulated& simulated, const StepOfOrder& orders) {
  std::string text =
      orders_text(found.strategy, orders) + explain::simulation_text(problem, simulated);
  if (!found.baselines.empty()) text += "\n" + baselines_text(found, simulated.result);
  return text;
}

// Commands that can be copied.
std::string next_text(const PlanOptions& options) {
  std::string files = fmt::format("--graph {} --cluster {}", shell_word(options.problem.graph),
                                  shell_word(options.problem.cluster));
  for (const std::string& profile : options.problem.profiles) {
    files += " --profile " + shell_word(profile);
  }
  if (options.problem.collectives != ProblemOptions{}.collectives) {
    files += " --collectives " + options.problem.collectives;
  }
  const std::string plan = shell_word(options.out);
  return fmt::format(
      "{} is written. Next:\n"
      "  heterog explain {} --plan {}   # why it takes that long\n"
      "  heterog run {} --plan {} --steps 10   # on its devices\n"
      "or plan again with --budget 60 (search for a minute) or --verbose (all tables)\n",
      printable(options.out, 400), files, plan, files, plan);
}

int run_plan(const PlanOptions& options, const Caller& caller) {
  VALIDATE(options.order_rounds == 0 || options.accumulate == 1,
           "--order-rounds: {} given beside --accumulate, which orders the plan",
           options.order_rounds);
  VALIDATE(!options.no_policy || options.planner == kPortfolio,
           "--no-policy: given beside --planner {}; it is for {}, without options",
           printable(options.planner, 400), kPortfolio);
  const std::string planner =
      options.no_policy ? fmt::format("{}:proposals=0", kPortfolio) : options.planner;
  const Stopwatch watch;
  const planner::Budget budget = start_budget(options.budget, "planning", caller);
  const loading::LoadedProblem loaded = loading::load_problem_file(options.problem);
  const auto& problem = loaded.problem;
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(*problem, threads, compile_options(options.problem),
                                 caller.stopped);
  planner::PlannerContext context{
      .oracle = oracle, .rng = Rng(options.common.seed), .budget = budget};
  planner::PlannerResult found =
      find_planner(planner, *problem->cluster, options.policy)->plan(context);
  if (found.found_by.empty()) found.found_by = planner;
  if (auto better = oracle.improve_order(found.strategy, options.order_rounds)) {
    found.strategy = std::move(better->strategy);
    found.found_by += " + order";
  }
  if (options.accumulate > 1) {
    found.strategy = compiler::accumulate(*problem, found.strategy, options.accumulate);
    found.found_by += fmt::format(", {} micro-batches", options.accumulate);
  }
  context.budget = {};  // wipes the progress line
  const double plan_seconds = watch.seconds();

  const sim::Simulated simulated =
      simulate_strategy(*problem, found.strategy, compile_options(options.problem));
  StepOfOrder orders;
  if (options.common.json || options.verbose) {
    orders = steps_of_orders(*problem, found.strategy, compile_options(options.problem));
  }
  // Files first: what is printed has been saved.
  if (simulated.result.feasible()) {
    write_plan_file(
        {.path = options.out, .planner = found.found_by, .max_groups = options.problem.max_groups},
        *problem, found.strategy, simulated);
    write_trace(options.trace, *problem, simulated);
  }
  const DevicesUsed used =
      devices_used(oracle, found.strategy, simulated, compile_options(options.problem));
  std::optional<WhatFits> fits;
  if (!simulated.result.feasible()) {
    fits = what_fits(*problem, options.problem, loaded.known, caller.stopped);
  }
  if (options.common.json) {
    OrderedJson json = explain::simulation_json(*problem, simulated);
    json["order"] = compiler::order_policy_name(found.strategy.order);
    for (const auto& [order, step] : orders) json["order_seconds"][order] = to_seconds(step);
    json["planner"] = found.found_by;
    json["plan_seconds"] = plan_seconds;
    json["evaluations"] = found.evaluations;
    json["baselines"] = OrderedJson::array();
    for (const planner::BaselineResult& baseline : found.baselines) {
      json["baselines"].push_back({{"name", baseline.name},
                                   {"step_seconds", to_seconds(baseline.evaluation.step)},
                                   {"feasible", baseline.evaluation.feasible}});
    }
    json.update(devices_used_json(*problem, used));
    if (fits) json["would_fit"] = what_fits_json(*fits);
    print_json(caller, json);
  } else {
    print(caller, "{}", plan_screen({*problem, found, simulated, used, plan_seconds}));
    if (options.verbose) print(caller, "\n{}", tables_text(*problem, found, simulated, orders));
    print(caller, "\n{}", fits ? what_fits_text(*fits) : next_text(options));
  }
  expect_fit(*problem, simulated);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& verb = *app.add_subcommand("plan", "Finds a plan for a model on a cluster");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  verb.add_option("--out", options->out, "Plan file to write")->required();
  auto* policy =
      verb.add_option("--policy", options->policy,
                      "Checkpoint of a planner with a policy (default: the shipped one)");
  verb.add_flag("--no-policy", options->no_policy,
                "Plan by search alone; short for --planner portfolio:proposals=0")
      ->excludes(policy);
  verb.add_option("--planner", options->planner, kPlannerHelp)->capture_default_str();
  add_accumulate(verb, options->accumulate);
  add_integer(verb, "--order-rounds", options->order_rounds, {0, 1000},
              "Improve the order of what the planner found, in so many rounds; the portfolio does "
              "so by itself");
  verb.add_option("--trace", options->trace, "Also write a Chrome trace of the simulated step");
  verb.add_flag("--verbose", options->verbose,
                "Print all tables: orders, devices, memory by purpose, links, baselines");
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog plan --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --batch 48 --out plan.json\n"
      "Exit code 3: no plan fits in memory (then none is written).");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_plan(*options, caller); };
  });
}

}  // namespace heterog::cli

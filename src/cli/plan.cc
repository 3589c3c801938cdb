// heterog plan: from a graph and a cluster to a plan file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/shell.h"
#include "base/text.h"
#include "cli/answers/carried.h"
#include "cli/answers/devices_used.h"
#include "cli/answers/plan_screen.h"
#include "cli/answers/what_fits.h"
#include "cli/engines/engines.h"
#include "cli/hidden.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/planning.h"
#include "cli/progress.h"
#include "cli/stopping.h"
#include "cli/verbs.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "explain/simulation.h"
#include "oracle/best_seen.h"
#include "oracle/simulated_oracle.h"
#include "search/answers/better_order.h"
#include "search/answers/fsdp2_plan.h"

namespace heterog::cli {

namespace {

struct PlanOptions {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::string out;
  std::string policy;
  std::string planner{kPortfolio};
  std::string engine;
  std::string from;
  std::int64_t accumulate = 1;
  int order_rounds = 0;
  std::string trace;
  HiddenOption hidden;
  bool verbose = false;
};

// What the decisions of a plan would take in every order that needs no priorities.
using StepOfOrder = std::vector<std::pair<std::string, Nanoseconds>>;
StepOfOrder steps_of_orders(oracle::Oracle& oracle, const decide::Strategy& strategy) {
  std::vector<decide::Strategy> in_orders;
  for (decide::OrderPolicy order : decide::kSearchedOrders) {
    decide::set_plain_order(in_orders.emplace_back(strategy), order);
  }
  const std::vector<oracle::Measured> measured = oracle.measure(in_orders);
  StepOfOrder steps;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    steps.emplace_back(decide::order_policy_name(decide::kSearchedOrders[i]),
                       measured[i].evaluation.step);
  }
  return steps;
}

std::string orders_text(const decide::Strategy& strategy, const StepOfOrder& steps) {
  std::string text = fmt::format("order {}; the same plan",
                                 decide::order_policy_name(decide::dispatch_order(strategy)));
  for (const auto& [order, step] : steps) {
    text += fmt::format("{} in order {} {}", &order == &steps.front().first ? "" : ",", order,
                        milliseconds_text(to_seconds(step)));
  }
  return text + "\n";
}

std::string baselines_text(const search::PlannerResult& result, const sim::SimResult& planned) {
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
std::string tables_text(const cost::Problem& problem, const search::PlannerResult& found,
                        const sim::Simulated& simulated, const StepOfOrder& orders) {
  std::string text =
      orders_text(found.strategy, orders) + explain::simulation_text(problem, simulated);
  if (!found.baselines.empty()) text += "\n" + baselines_text(found, simulated.result);
  return text;
}

// Commands that can be copied.
std::string next_text(const PlanOptions& options) {
  const std::string files = problem_words(options.problem);
  const std::string plan = shell_word(options.out);
  if (!options.engine.empty()) {
    return fmt::format(
        "{} is written. Next:\n  heterog hand-over {} --plan {} --to {} --out handed-over\n",
        printable(options.out, 400), files, plan, options.engine);
  }
  return fmt::format(
      "{} is written. Next:\n"
      "  heterog explain {} --plan {}   # why it takes that long\n"
      "  heterog run {} --plan {} --steps 10   # on its devices\n"
      "or plan again with --budget 60 (search for a minute) or --verbose (all tables)\n",
      printable(options.out, 400), files, plan, files, plan);
}

struct Searched {
  search::PlannerResult result;
  bool stopped = false;  // before the planner was done: the best of what it had tried
  // Of a plan for an engine: what the planner finds that may say anything.
  std::optional<search::PlannerResult> free = {};
  std::optional<Carried> carried = {};  // of --from
};

// A stop ends the planner at its next simulated plan.
Searched search(const PlanOptions& options, const cost::Problem& problem, ThreadPool& threads,
                oracle::Budget budget, const Stopping& stopping, oracle::Oracle* trials) {
  oracle::SimulatedOracle simulator(problem, threads, compile_options(options.problem),
                                    [&] { return stopping.asked(); });
  oracle::BestSeen oracle(simulator);
  search::PlannerContext context{.oracle = oracle,
                                 .rng = Rng(options.common.seed),
                                 .budget = std::move(budget),
                                 .trials = trials};
  Searched found;
  try {
    if (options.from.empty()) {
      const auto maker = find_planner(options.planner, *problem.cluster, options.policy);
      found.result = maker->plan(context);
    } else {
      const Stopwatch watch;
      Carried carried = read_carried(options.from, problem);
      found.result = plan_from(context, carried);
      carried.seconds = watch.seconds();
      found.carried = std::move(carried);  // whole: a stop before says nothing of it
    }
    if (found.result.found_by.empty()) found.result.found_by = options.planner;
    if (auto better = search::better_order(oracle, found.result.strategy, options.order_rounds)) {
      found.result.strategy = std::move(better->strategy);
      found.result.found_by += " + order";
    }
  } catch (const Error&) {
    if (!stopping.asked()) throw;
    if (!oracle.best()) {
      throw Error(ErrorKind::kVerification, stopping.text(0) + ", before any plan was simulated");
    }
    found.result = {.strategy = oracle.best()->strategy,
                    .evaluation = oracle.best()->evaluation,
                    .evaluations = oracle.evaluations(),
                    .found_by = (options.from.empty() ? options.planner : "carried") + ", stopped"};
    found.stopped = true;
  }
  if (options.accumulate > 1) {
    found.result.strategy = decide::accumulate(problem, found.result.strategy, options.accumulate);
    found.result.found_by += fmt::format(", {} micro-batches", options.accumulate);
  }
  return found;
}

// The baselines that the planner looked at, as they are under hidden costs: each at the order that
// is believed to be its best.
std::vector<search::BaselineResult> baselines_tried(
    const std::vector<search::BaselineResult>& believed, const cost::Problem& problem,
    ThreadPool& threads, const compiler::CompileOptions& compiling, HiddenRun& hidden) {
  std::vector<search::BaselineResult> tried;
  oracle::SimulatedOracle oracle(problem, threads, compiling);
  for (const search::BaselineResult& one : believed) {
    search::PlannerContext context{.oracle = oracle};
    const auto found = find_planner(one.name, *problem.cluster)->plan(context);
    tried.push_back({one.name, hidden.shown(found.strategy, found.evaluation)});
  }
  return tried;
}

// The engine's own search, then the planner's beside it; each has the budget. A stop ends both.
Searched search_for_engine(const PlanOptions& options, const cost::Problem& problem,
                           ThreadPool& threads, const Caller& caller, const Stopping& stopping) {
  oracle::SimulatedOracle simulator(problem, threads, compile_options(options.problem),
                                    caller.stopped);
  search::WithParameterRows with_rows(simulator);
  oracle::Oracle& oracle = simulator;
  search::BatchEvaluator evaluator(
      options.engine == "fsdp2" ? with_rows : oracle,
      stopping.until_asked(start_budget(options.budget, "planning for " + options.engine, caller)));
  Searched found;
  try {
    found.result = plan_for(options.engine, evaluator);
  } catch (const Error&) {
    if (!stopping.asked()) throw;
    throw Error(ErrorKind::kVerification,
                fmt::format("{}, before any plan for {} that fits was simulated", stopping.text(0),
                            options.engine));
  }
  found.stopped = stopping.asked();
  if (found.stopped) return found;
  search::PlannerResult free;
  try {
    free = search(options, problem, threads,
                  start_budget(options.budget, "planning freely", caller), stopping, nullptr)
               .result;
  } catch (const Error&) {
    if (!stopping.asked()) throw;
    found.stopped = true;
    return found;
  }
  found.stopped = stopping.asked();
  found.result.baselines = free.baselines;
  // Whatever an engine can say is a free plan too.
  found.free = search::better(found.result.evaluation, free.evaluation) ? found.result : free;
  return found;
}

// What the engine's limits cost.
std::string free_text(const search::PlannerResult& free, const sim::SimResult& planned) {
  if (!free.evaluation.feasible) return "\nfree plan  does not fit in memory\n";
  const double step = to_seconds(free.evaluation.step), ours = to_seconds(planned.step);
  if (planned.feasible() && step >= ours) return "\nfree plan  no faster\n";
  return fmt::format("\nfree plan  {} by {}{}\n", milliseconds_text(step), free.found_by,
                     planned.feasible() ? ", " + speedup_text(ours, step) : "");
}

// Of a plan for fsdp2: what a rank holds of the parameters, beside what is simulated.
Bytes rows_beside(const cost::Problem& problem, const decide::Strategy& strategy) {
  return search::parameter_rows(problem, strategy.units[UnitId(0)].replicas.size());
}

std::string rows_text(const cost::Problem& problem, const decide::Strategy& strategy) {
  return fmt::format(
      "\nbeside it  {} a rank, its rows of the parameters; "
      "fully_shard(reshard_after_forward=False)\n",
      gigabytes_text(rows_beside(problem, strategy)));
}

OrderedJson plan_json(const cost::Problem& problem, const search::PlannerResult& found,
                      const sim::Simulated& simulated, const StepOfOrder& orders,
                      double plan_seconds) {
  OrderedJson json = explain::simulation_json(problem, simulated);
  json["order"] = decide::order_policy_name(decide::dispatch_order(found.strategy));
  for (const auto& [order, step] : orders) json["order_seconds"][order] = to_seconds(step);
  json["planner"] = found.found_by;
  json["plan_seconds"] = plan_seconds;
  json["evaluations"] = found.evaluations;
  json["refused"] = found.refused;
  json["baselines"] = OrderedJson::array();
  for (const search::BaselineResult& baseline : found.baselines) {
    json["baselines"].push_back({{"name", baseline.name},
                                 {"step_seconds", to_seconds(baseline.evaluation.step)},
                                 {"feasible", baseline.evaluation.feasible}});
  }
  return json;
}

// What became of a search that was stopped.
Error stopped_error(const std::string& text, const std::string& out,
                    const search::PlannerResult& found, const sim::Simulated& simulated) {
  return {ErrorKind::kVerification,
          simulated.result.feasible()
              ? fmt::format("{}; {} has the best of {} plans that were simulated", text,
                            printable(out, 400), found.evaluations)
              : fmt::format("{}; of {} plans that were simulated none fits in memory, and none is "
                            "written",
                            text, found.evaluations)};
}

void check_from(const PlanOptions& options) {
  if (options.from.empty()) return;
  VALIDATE(options.planner == kPortfolio,
           "--from: given beside --planner {}; it is gone on from by "
           "moves of its own, so give one of both",
           printable(options.planner, 400));
  VALIDATE(options.engine.empty(), "--from: given beside --for, whose searches begin anew");
  VALIDATE(!options.hidden.costs, "--from: given beside --hidden, whose loops begin anew");
}

int run_plan(const PlanOptions& options, const Caller& caller) {
  const bool for_engine = !options.engine.empty(), for_shards = options.engine == "fsdp2";
  if (for_engine) expect_engine("--for", options.engine);
  VALIDATE(!for_engine || (options.order_rounds == 0 && options.accumulate == 1),
           "--for: given beside {}, which changes plans so that no engine can say them",
           options.accumulate > 1 ? "--accumulate" : "--order-rounds");
  check_from(options);
  VALIDATE(!for_engine || options.problem.compress.empty(),
           "--compress: given beside --for, whose engines compress by hooks of their own");
  VALIDATE(!for_engine || !options.hidden.costs,
           "--hidden: given beside --for, whose searches know the costs");
  VALIDATE(options.order_rounds == 0 || options.accumulate == 1,
           "--order-rounds: {} given beside --accumulate, which orders the plan",
           options.order_rounds);
  const std::string asked = search::parse_request(options.planner).name;
  VALIDATE(options.policy.empty() || planner_registry().entry(asked).has_option("checkpoint"),
           "--policy: given beside --planner {}, which has no policy; expected --planner policy",
           printable(options.planner, 400));
  expect_writable(options.out);
  const Stopwatch watch;
  // From here on, reading too; searches for an engine have budgets of their own.
  oracle::Budget budget;
  if (!for_engine) budget = start_budget(options.budget, "planning", caller);
  const loading::LoadedProblem loaded = loading::load_problem_file(options.problem);
  const auto how = compile_options(options.problem);
  ThreadPool threads(options.common.threads);
  std::optional<Stopping> stopping(std::in_place, caller);
  HiddenRun hidden(options.hidden, *loaded.problem, threads, how,
                   [&] { return stopping && stopping->asked(); });
  // The budget goes with it, and wipes its progress line.
  Searched searched = for_engine
                          ? search_for_engine(options, *loaded.problem, threads, caller, *stopping)
                          : search(options, *loaded.problem, threads, std::move(budget), *stopping,
                                   hidden.trials());
  // What follows is about the step as it is.
  const cost::Problem* problem = &hidden.problem();
  if (hidden.trials()) {
    searched.result.baselines =
        baselines_tried(searched.result.baselines, *loaded.problem, threads, how, hidden);
  }
  const search::PlannerResult& found = searched.result;
  const double plan_seconds = watch.seconds();
  const sim::Simulated simulated = simulate_strategy(*problem, found.strategy, how);
  StepOfOrder orders;
  if (options.common.json || options.verbose) {
    oracle::SimulatedOracle in_orders(*problem, threads, how);
    orders = steps_of_orders(in_orders, found.strategy);
  }
  // Files first: what is printed has been saved.
  if (simulated.result.feasible()) {
    write_plan_file(
        {.path = options.out, .planner = found.found_by, .max_groups = options.problem.max_groups},
        *problem, found.strategy, simulated);
    write_trace(options.trace, *problem, simulated);
  }
  std::optional<Error> stopped;
  if (searched.stopped) {
    stopped = stopped_error(stopping->text(plan_seconds), options.out, found, simulated);
    if (!caller.is_program || !simulated.result.feasible()) throw *stopped;
  }
  stopping.reset();  // what is left to do may be cut short
  oracle::SimulatedOracle oracle(*problem, threads, how, caller.stopped);
  const DevicesUsed used = devices_used(oracle, found.strategy, simulated, how);
  // Measured costs are those of the graph as it is.
  std::optional<EmulatedBfloat16> bfloat16;
  if (options.problem.profiles.empty()) {
    bfloat16 = emulated_bfloat16(*problem, found.strategy, how);
  }
  std::optional<search::WhatFits> fits;
  if (!simulated.result.feasible()) {
    fits = what_fits(*problem, options.problem, loaded.known, caller.stopped);
  }
  if (options.common.json) {
    OrderedJson json = plan_json(*problem, found, simulated, orders, plan_seconds);
    if (searched.stopped) json["stopped"] = true;
    if (for_engine) json["for"] = options.engine;
    if (for_shards) json["parameter_row_bytes"] = rows_beside(*problem, found.strategy);
    if (searched.free) {
      json["free"] = {{"step_seconds", to_seconds(searched.free->evaluation.step)},
                      {"feasible", searched.free->evaluation.feasible},
                      {"planner", searched.free->found_by}};
    }
    json.update(devices_used_json(*problem, used));
    if (searched.carried) json["from"] = carried_json(*searched.carried);
    if (bfloat16) json["bfloat16"] = bfloat16_json(*bfloat16);
    if (fits) json["would_fit"] = what_fits_json(*fits);
    print_json(caller, json);
  } else {
    print(caller, "{}", plan_screen({*problem, found, simulated, used, plan_seconds, bfloat16}));
    if (options.verbose) print(caller, "\n{}", tables_text(*problem, found, simulated, orders));
    if (for_shards) print(caller, "{}", rows_text(*problem, found.strategy));
    if (searched.free) print(caller, "{}", free_text(*searched.free, simulated.result));
    if (searched.carried) print(caller, "{}", carried_text(*searched.carried, simulated.result));
    print(caller, "\n{}", fits ? what_fits_text(*fits) : next_text(options));
  }
  if (stopped) throw *stopped;
  expect_fit(*problem, simulated);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& verb = *app.add_subcommand("plan", "Finds a plan for a model on a cluster");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  add_compress(verb, options->problem);
  verb.add_option("--out", options->out, "Plan file to write")->required();
  verb.add_option("--policy", options->policy,
                  "Checkpoint of --planner policy (default: the shipped one)");
  verb.add_option("--planner", options->planner, kPlannerHelp)->capture_default_str();
  verb.add_option("--for", options->engine,
                  fmt::format("Plan what this engine can say ({}); --planner then finds the free "
                              "plan beside it, each within the budget",
                              fmt::join(kEngines, ", ")));
  verb.add_option("--from", options->from,
                  "Plan file for other devices or another batch: carry it over and improve it, in "
                  "a moment or within the budget");
  add_accumulate(verb, options->accumulate);
  add_integer(verb, "--order-rounds", options->order_rounds, {0, 1000},
              "Improve the order of what the planner found, in so many rounds; the portfolio does "
              "so by itself");
  verb.add_option("--trace", options->trace, "Also write a Chrome trace of the simulated step");
  verb.add_flag("--verbose", options->verbose,
                "Print all tables: orders, devices, memory by purpose, links, baselines");
  add_hidden(verb, options->hidden);
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog plan --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --batch 48 --out plan.json\n"
      "Exit code 3: no plan fits in memory (then none is written). Ctrl-C ends the search, the "
      "best plan so\nfar is written, and the exit code is 4; a second Ctrl-C ends it as it is.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_plan(*options, caller); };
  });
}

}  // namespace heterog::cli

// heterog shares: how many samples each rank of plain data parallelism should take.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/answers/devices_used.h"
#include "cli/engines/shares_file.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "cli/progress.h"
#include "cli/stopping.h"
#include "cli/verbs.h"
#include "oracle/simulated_oracle.h"
#include "search/answers/ddp_plan.h"

namespace heterog::cli {

namespace {

struct SharesOptions {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::string planner = "search";
  std::string out;
};

struct Found {
  search::DdpResult all;
  std::int64_t evaluations = 0;
  search::DdpPlan chosen;
  sim::Simulated simulated;  // the chosen ones
  std::string planner;
  DevicesUsed used;
};

Found search(const SharesOptions& options, oracle::Oracle& oracle, const Stopping& stopping,
             const Caller& caller) {
  search::BatchEvaluator evaluator(
      oracle, stopping.until_asked(start_budget(options.budget, "sharing the batch", caller)));
  search::DdpOptions search{.as_ddp = false};
  // The budget alone ends the search, if it does not end by itself.
  if (options.budget.seconds || options.budget.evaluations) {
    search.evaluations = std::numeric_limits<std::int64_t>::max() / 2;
  }
  Found found{.all = search::search_ddp(evaluator, search),
              .chosen = {},
              .simulated = {},
              .planner = options.planner,
              .used = {}};
  found.evaluations = evaluator.evaluations();
  found.chosen = found.all.best;
  for (const auto& [name, shares] :
       {std::pair{"ev-ar", &found.all.even}, std::pair{"cp-ar", &found.all.proportional}}) {
    if (options.planner != name) continue;
    found.chosen = {
        .samples = shares->samples, .strategy = shares->strategy, .evaluation = shares->evaluation};
  }
  return found;
}

// Null unless both fit.
OrderedJson speedup_json(const search::Evaluation& base, const search::Evaluation& ours) {
  if (!base.feasible || !ours.feasible) return nullptr;
  return (to_seconds(base.step) - to_seconds(ours.step)) / to_seconds(ours.step);
}

// What the file holds: the shares, and what even and proportional ones come to.
OrderedJson shares_json(const cost::Problem& problem, const Found& found) {
  OrderedJson json = shares_file_json(problem, found.planner, found.chosen.samples,
                                      found.chosen.strategy, found.simulated);
  // Behind everything else.
  const OrderedJson devices = std::move(json["devices"]);
  json.erase("devices");
  for (const auto& [key, other] :
       {std::pair{"even", &found.all.even}, std::pair{"proportional", &found.all.proportional}}) {
    json[key] = {{"step_seconds", to_seconds(other->evaluation.step)},
                 {"feasible", other->evaluation.feasible},
                 {"speedup", speedup_json(other->evaluation, found.chosen.evaluation)}};
  }
  json["devices"] = devices;
  return json;
}

// With micro-batches, how many of what size each rank takes.
std::string devices_text(const cost::Problem& problem, const Found& found) {
  const std::int64_t count = found.chosen.micro_batches;
  std::vector<std::string> header = {"device", "type", "rank", "samples"};
  if (count > 1) header.emplace_back("micro-batches");
  header.insert(header.end(), {"share", "busy", "peak memory", "of"});
  Table table(std::move(header));
  int rank = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    const std::int64_t own = found.chosen.samples[device], samples = own * count;
    std::vector<std::string> row = {
        problem.cluster->device(device).name, problem.cluster->type_of(device).name,
        own > 0 ? std::to_string(rank++) : "-", std::to_string(samples)};
    if (count > 1) row.push_back(own > 0 ? fmt::format("{} of {}", count, own) : "-");
    row.insert(row.end(),
               {fmt::format("{:.1f} %", 100 * static_cast<double>(samples) /
                                            static_cast<double>(problem.batch)),
                milliseconds_text(to_seconds(found.simulated.result.device_busy[device])),
                gigabytes_text(found.simulated.result.peak_bytes[device]),
                gigabytes_text(found.simulated.plan.capacity[device])});
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string steps_text(const cost::Problem& problem, const Found& found) {
  const search::Evaluation& ours = found.chosen.evaluation;
  Table table({"shares", "step", "rate", "feasible", "gain over them"});
  const auto add = [&](const std::string& name, const search::Evaluation& other) {
    table.add_row({name, milliseconds_text(to_seconds(other.step)),
                   explain::rate_text(problem.batch, other.step), other.feasible ? "yes" : "no",
                   other.feasible && ours.feasible && &other != &ours
                       ? speedup_text(to_seconds(other.step), to_seconds(ours.step))
                       : "-"});
  };
  add("these", ours);
  add("even (EV)", found.all.even.evaluation);
  add("proportional (CP)", found.all.proportional.evaluation);
  return table.text();
}

int run_shares(const SharesOptions& options, const Caller& caller) {
  constexpr std::array kPlanners = {"search", "ev-ar", "cp-ar"};
  VALIDATE(std::find(kPlanners.begin(), kPlanners.end(), options.planner) != kPlanners.end(),
           "--planner: \"{}\" given; shares come from search, ev-ar or cp-ar",
           printable(options.planner));
  const Stopwatch watch;
  if (!options.out.empty()) expect_writable(options.out);
  const auto problem = load_problem(options.problem);
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(*problem, threads, compile_options(options.problem),
                                 caller.stopped);
  std::optional<Stopping> stopping(std::in_place, caller);
  Found found = search(options, oracle, *stopping, caller);
  std::string stopped;
  if (stopping->asked()) {
    stopped = fmt::format("{}; these are the best shares of {} plans that were simulated",
                          stopping->text(watch.seconds()), found.evaluations);
  }
  found.simulated =
      simulate_strategy(*problem, found.chosen.strategy, compile_options(options.problem));
  found.used = devices_used(oracle, found.chosen.strategy, found.simulated,
                            compile_options(options.problem));
  OrderedJson json = shares_json(*problem, found);
  // The file first: what is printed has been saved.
  if (!options.out.empty() && found.chosen.evaluation.feasible) {
    write_file(options.out, json.dump(2) + "\n");
  }
  stopping.reset();  // what is left to do may be cut short
  if (options.common.json) {
    json["plan_seconds"] = watch.seconds();
    json["evaluations"] = found.evaluations;
    json.update(devices_used_json(*problem, found.used));
    print_json(caller, json);
  } else {
    print(caller, "{} on {}, batch {}: found in {:.2f} s, {} plans simulated\n",
          problem->graph->name(), problem->cluster->name(), problem->batch, watch.seconds(),
          found.evaluations);
    print(caller, "{}{}\n{}{}", devices_text(*problem, found),
          micro_batches_text(found.chosen.micro_batches), steps_text(*problem, found),
          devices_used_text(*problem, found.simulated, found.used));
  }
  if (!stopped.empty()) throw Error(ErrorKind::kVerification, stopped);
  expect_fit(*problem, found.simulated);
  return 0;
}

}  // namespace

void add_shares(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SharesOptions>();
  CLI::App& verb = *app.add_subcommand(
      "shares", "Says how many samples each rank of plain data parallelism should take");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  verb.add_option("--planner", options->planner,
                  "search (the best found), ev-ar (even) or cp-ar (proportional to speed)")
      ->capture_default_str();
  verb.add_option("--out", options->out, "Also write the shares, for heterog.UnevenBatchSampler");
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog shares --graph models/vgg19.json.gz "
      "--cluster configs/clusters/office-mixed.json --batch 96 --out shares.json\n"
      "A device without samples takes no part: start no process on it. docs/shares.md says how "
      "to train with the result.\nExit code 3: no shares fit in memory (then none are written).");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_shares(*options, caller); };
  });
}

}  // namespace heterog::cli

// heterog finetune: goes on training on one unseen graph; its best plan on request.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planning.h"
#include "cli/progress.h"
#include "cli/stopping.h"
#include "cli/torch/training.h"
#include "cli/verbs.h"
#include "explain/simulation.h"
#include "learn/api.h"
#include "learn/train_log_io.h"
#include "oracle/simulated_oracle.h"
#include "search/portfolio/portfolio.h"

namespace heterog::cli {

namespace {

struct FinetuneVerbOptions {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::string policy;
  std::vector<std::string> set;
  std::string out;
  std::string plan;
  std::string trace;
  std::string log;
  bool gpu = false;
};

// Its best find, and what it now proposes, through the planner of `heterog plan`.
search::PlannerResult plan_with(const learn::FinetuneResult& tuned, std::uint64_t seed,
                                oracle::Oracle& oracle) {
  search::PlannerContext context{.oracle = oracle, .rng = Rng(seed)};
  constexpr int kMore = 7;  // beside the most likely one
  search::PortfolioOptions options{.given_by = "policy"};
  options.given.push_back(tuned.strategy);
  oracle::BatchEvaluator evaluator(oracle);
  for (decide::Strategy& one :
       learn::propose(tuned.policy, evaluator, kMore, context.rng.split(1))) {
    options.given.push_back(std::move(one));
  }
  return search::best_plan(context, options);
}

// What fine-tuning found, where the search after it is stopped, or was before it began.
search::PlannerResult plan_of(const FinetuneVerbOptions& options,
                              const learn::FinetuneResult& tuned, const cost::Problem& problem,
                              ThreadPool& threads, const Stopping& stopping) {
  oracle::SimulatedOracle oracle(problem, threads, compile_options(options.problem),
                                 [&] { return stopping.asked(); });
  try {
    return plan_with(tuned, options.common.seed, oracle);
  } catch (const Error&) {
    if (!stopping.asked()) throw;
  }
  return {.strategy = tuned.strategy,
          .evaluation = tuned.evaluation,
          .evaluations = tuned.evaluations,
          .found_by = "fine-tuning, stopped"};
}

Error stopped_error(const FinetuneVerbOptions& options, const std::string& text,
                    const learn::FinetuneResult& tuned,
                    const std::optional<sim::Simulated>& simulated) {
  std::string what =
      fmt::format("{}; {} has the policy as it was then", text, printable(options.out, 400));
  if (simulated && simulated->result.feasible()) {
    what += fmt::format(", {} the best of {} plans that were simulated",
                        printable(options.plan, 400), tuned.evaluations);
  }
  return {ErrorKind::kVerification, what};
}

// What the policy was taught until the budget was spent, or until it was stopped.
learn::FinetuneResult finetune(const FinetuneVerbOptions& options, const cost::Problem& problem,
                               oracle::Oracle& oracle, const Stopping& stopping,
                               std::optional<OutputFile>& log, const Caller& caller) {
  const std::string start = options.policy.empty() ? learn::shipped_policy_path() : options.policy;
  const learn::Policy policy = learn::Policy::load(start);
  Progress progress(caller, "fine-tuning");
  return learn::finetune(
      policy, oracle,
      {.name =
           fmt::format("{} {} {}", problem.graph->name(), problem.batch, problem.cluster->name()),
       .seed = options.common.seed,
       .budget = stopping.until_asked(start_budget(options.budget, "fine-tuning", caller)),
       .learning = settings(options.set, "--set finetune_draws=edits"),
       .gpu = gpu_for_passes(options.gpu, 0),
       .progress = [&](const learn::TrainProgress& now) {
         if (log) log->append(learn::log_line(now));
         const double done = options.budget.seconds
                                 ? progress.seconds() / *options.budget.seconds
                                 : static_cast<double>(now.evaluations) /
                                       static_cast<double>(*options.budget.evaluations);
         progress.show(done, progress_text(now));
       }});
}

int run_finetune(const FinetuneVerbOptions& options, const Caller& caller) {
  VALIDATE(options.budget.any(),
           "finetune needs --budget SECONDS or --evaluations N: there is no other end to it");
  const Stopwatch watch;
  expect_writable(options.out);
  if (!options.plan.empty()) expect_writable(options.plan);
  std::optional<OutputFile> log;
  if (!options.log.empty()) log.emplace(options.log);
  const auto problem = load_problem(options.problem);
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(*problem, threads, compile_options(options.problem));
  std::optional<Stopping> stopping(std::in_place, caller);
  const learn::FinetuneResult tuned = finetune(options, *problem, oracle, *stopping, log, caller);
  tuned.policy.save(options.out);
  if (log) log->commit();

  OrderedJson json;
  json["policy"] = options.out;
  json["evaluations"] = tuned.evaluations;
  json["best_step_seconds"] = to_seconds(tuned.evaluation.step);
  json["feasible"] = tuned.evaluation.feasible;
  json["entropy_nats"] = tuned.entropy;
  if (tuned.collapsed_after) json["collapsed_after"] = *tuned.collapsed_after;
  json["mean_step_seconds"] = tuned.mean_step_seconds;
  if (options.common.json) {
    const search::Evaluation likely = oracle.measure(std::span(&tuned.likely, 1))[0].evaluation;
    json["likely_step_seconds"] = to_seconds(likely.step);
    json["likely_feasible"] = likely.feasible;
  }
  json["finetune_seconds"] = watch.seconds();
  if (!options.common.json) {
    print(caller, "{} plans simulated in {}; best {}{}; policy in {}\n", tuned.evaluations,
          duration_text(watch.seconds()), milliseconds_text(to_seconds(tuned.evaluation.step)),
          tuned.evaluation.feasible ? "" : " (does not fit in memory)", options.out);
  }
  std::optional<sim::Simulated> simulated;
  if (!options.plan.empty()) {
    const search::PlannerResult found = plan_of(options, tuned, *problem, threads, *stopping);
    simulated = simulate_strategy(*problem, found.strategy, compile_options(options.problem));
    if (simulated->result.feasible()) {
      write_plan_file({.path = options.plan,
                       .planner = found.found_by,
                       .max_groups = options.problem.max_groups},
                      *problem, found.strategy, *simulated);
      write_trace(options.trace, *problem, *simulated);
    }
    if (options.common.json) {
      json["plan"] = explain::simulation_json(*problem, *simulated);
      json["plan"]["planner"] = found.found_by;
    } else {
      print(caller, "plan of {}\n{}", found.found_by,
            explain::simulation_text(*problem, *simulated));
    }
  }
  const bool stopped = stopping->asked();
  if (stopped) json["stopped"] = true;
  if (options.common.json) print_json(caller, json);
  if (stopped) throw stopped_error(options, stopping->text(watch.seconds()), tuned, simulated);
  if (simulated) expect_fit(*problem, *simulated);
  return 0;
}

}  // namespace

void add_finetune(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<FinetuneVerbOptions>();
  CLI::App& verb =
      *app.add_subcommand("finetune", "Goes on training a policy on one graph and cluster");
  verb.add_option("--policy", options->policy,
                  "Checkpoint to start from (default: the shipped one)");
  verb.add_option("--set", options->set,
                  "key=value of learning in place of the policy's, may be repeated");
  verb.add_flag("--gpu", options->gpu, "Make forward and backward passes on a GPU");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  add_compress(verb, options->problem);
  verb.add_option("--out", options->out, "Checkpoint to write")->required();
  auto* plan = verb.add_option("--plan", options->plan, "Also write the best plan");
  verb.add_option("--trace", options->trace, "Also write a Chrome trace of that plan")->needs(plan);
  verb.add_option("--log", options->log,
                  "Also write the learning curve, a JSON object a step, as train.log of train");
  add_budget(verb, options->budget);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog finetune --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --batch 48 --out bert.ckpt --budget 60 "
      "--plan plan.json\n"
      "Ctrl-C ends it after the step that it is in: policy and best plan so far are written, and "
      "the "
      "exit code\nis 4; a second Ctrl-C ends it as it is.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_finetune(*options, caller); };
  });
}

}  // namespace heterog::cli

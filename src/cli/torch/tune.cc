// heterog tune: plans, runs the plan, fits costs to what it took, and plans again.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/median.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/hidden.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/planning.h"
#include "cli/stopping.h"
#include "cli/torch/processes.h"
#include "cli/torch/tune_files.h"
#include "cli/verbs.h"
#include "measure/records_io.h"
#include "search/portfolio/portfolio.h"
#include "search/portfolio/replan.h"
#include "tune/hidden_trial.h"
#include "tune/trial_oracle.h"
#include "tune/tuning.h"

namespace heterog::cli {

namespace {

// Groups then do not depend on costs, which would be other ones in each round: no model has as many
// sets of operators that stay together.
constexpr int kAllGroups = 1 << 16;

struct TuneVerb {
  CommonOptions common;
  ProblemOptions problem;
  BudgetOptions budget;
  std::string planner{kPortfolio};
  std::string policy;
  std::string out;
  std::string profile_out;
  std::int64_t rounds = tune::TuneOptions{}.rounds;
  bool every_plan = false;
  // Of the runs.
  std::int64_t steps = 3;
  int operator_threads = 0;
  std::vector<std::string> slow;
  bool any_device = false;
  ProcessOptions ranks;
  // Of the simulator in their place.
  HiddenOption hidden;
  std::optional<std::int64_t> known;
};

// What `heterog run` is told, to run this plan file under these costs.
std::vector<std::string> run_words(const TuneVerb& options, const std::string& plan,
                                   const std::vector<std::string>& profiles,
                                   const std::string& records) {
  std::vector<std::string> words = {"run",
                                    "--graph",
                                    options.problem.graph,
                                    "--cluster",
                                    options.problem.cluster,
                                    "--collectives",
                                    options.problem.collectives,
                                    "--plan",
                                    plan,
                                    "--steps",
                                    std::to_string(options.steps),
                                    "--records-out",
                                    records,
                                    "--seed",
                                    std::to_string(options.common.seed),
                                    "--threads",
                                    std::to_string(options.operator_threads)};
  for (const std::string& profile : profiles) words.insert(words.end(), {"--profile", profile});
  for (const std::string& slow : options.slow) words.insert(words.end(), {"--slow", slow});
  if (options.any_device) words.emplace_back("--any-device");
  if (options.ranks.in_threads) {
    words.emplace_back("--in-threads");
  } else {
    words.insert(words.end(), {"--transport", options.ranks.transport, "--timeout",
                               fmt::format("{}", options.ranks.timeout_seconds)});
  }
  return words;
}

// What rounds are made of: planning, and running or simulating what was planned.
class Tuner {
 public:
  Tuner(const TuneVerb& options, std::shared_ptr<const cost::Problem> believed,
        const Caller& caller)
      : options_(options),
        caller_(caller),
        how_(compile_options(options.problem)),
        threads_(options.common.threads),
        believed_(std::move(believed)),
        files_(options.problem) {
    if (options.hidden.costs) world_ = cost::hidden_problem(*believed_, *options.hidden.costs);
  }

  tune::Tuned run(const std::function<void(const tune::Tuned&)>& after_round) {
    return tune::tune(
        believed_, [&](const auto& costs, const auto* kept) { return plans(costs, kept); },
        [&](const auto& costs, const auto& strategy) { return trial(costs, strategy); },
        {.rounds = options_.rounds, .given = files_.given()},
        [&](const tune::Tuned& so_far) {
          write(so_far);
          after_round(so_far);
        });
  }

  // In place of rounds: the planner's judge is what is measured.
  void judge_by_runs(const std::function<void(const tune::TriedPlan&)>& tried) {
    search::PlannerResult found;
    until_stopped([&](const std::function<bool()>&) {
      tune::TrialOracle oracle(
          believed_,
          [&](const auto& costs, const auto& strategy) { return trial(costs, strategy); }, how_,
          tried);
      search::PlannerContext context{.oracle = oracle,
                                     .rng = Rng(options_.common.seed),
                                     .budget = start_budget(options_.budget, "planning", caller_)};
      found = find_planner(options_.planner, *believed_->cluster, options_.policy)->plan(context);
    });
    if (!found.evaluation.feasible) {
      expect_fit(*believed_, simulate_strategy(*believed_, found.strategy, how_));
    }
  }

  // A file whole, the old one or the new one.
  void write_plan(const decide::Strategy& strategy, const std::string& planner,
                  const cost::Problem& costs) const {
    if (options_.out.empty()) return;
    write_plan_file(
        {.path = options_.out, .planner = planner, .max_groups = options_.problem.max_groups},
        costs, strategy, simulate_strategy(costs, strategy, how_));
  }

  // The shortest step that is known where costs are hidden: of the plan that was kept, of searches
  // by the hidden costs from nothing, in one shot and in so many plans, and from the kept plan.
  double known_seconds(const tune::Tuned& tuned, std::int64_t plans) {
    double best = tuned.kept_round().measured_seconds;
    until_stopped([&](const std::function<bool()>& stopped) {
      oracle::SimulatedOracle oracle(*world_, threads_, how_, stopped);
      const auto look_at = [&](const search::PlannerResult& found) {
        if (found.evaluation.feasible) best = std::min(best, to_seconds(found.evaluation.step));
      };
      const auto context = [&](std::optional<std::int64_t> evaluations) {
        return search::PlannerContext{.oracle = oracle,
                                      .rng = Rng(options_.common.seed),
                                      .budget = {.evaluations = evaluations}};
      };
      search::PlannerContext one_shot = context({}), more = context(plans), from = context(plans);
      look_at(search::best_plan(one_shot));
      look_at(search::best_plan(more));
      look_at(search::replan(from, {tuned.kept_round().planned.strategy}).result);
    });
    return best;
  }

 private:
  // Searches with one who says whether to give up, and words it where that is so.
  void until_stopped(const std::function<void(const std::function<bool()>& stopped)>& search) {
    try {
      search([&] { return stopping_->asked(); });
    } catch (const Error&) {
      if (!stopping_->asked()) throw;
    }
    expect_not_asked();
  }
  void expect_not_asked() const {
    if (!stopping_->asked()) return;
    throw Error(ErrorKind::kVerification, stopping_->text(watch_.seconds()));
  }

  tune::Proposals plans(const cost::Problem& costs, const decide::Strategy* kept) {
    tune::Proposals proposals;
    until_stopped([&](const std::function<bool()>& stopped) {
      oracle::SimulatedOracle oracle(costs, threads_, how_, stopped);
      search::PlannerContext context{.oracle = oracle,
                                     .rng = Rng(options_.common.seed),
                                     .budget = start_budget(options_.budget, "planning", caller_)};
      const auto planner = find_planner(options_.planner, *costs.cluster, options_.policy);
      proposals = tune::plan_again(context, *planner, options_.planner, kept);
    });
    const tune::Proposal& best = proposals.plans.front();
    if (!best.evaluation.feasible) {
      expect_fit(costs, simulate_strategy(costs, best.strategy, how_));
    }
    return proposals;
  }

  tune::Trial trial(const std::shared_ptr<const cost::Problem>& costs,
                    const decide::Strategy& strategy) {
    if (world_) return tune::hidden_trial(costs, world_, strategy, how_);
    const sim::Simulated simulated = simulate_strategy(*costs, strategy, how_);
    const std::string plan = scratch_.file("plan.json"), records = scratch_.file("records.json");
    write_plan_file({.path = plan, .planner = "tune", .max_groups = options_.problem.max_groups},
                    *costs, strategy, simulated);
    const std::vector<std::string> words = run_words(options_, plan, files_.now(), records);
    expect_not_asked();
    if (options_.ranks.in_threads) {
      run_arguments(words, {.print = [](std::string_view) {}, .stopped = caller_.stopped});
    } else {
      stopping_.reset();  // who runs ranks notes signals itself, and passes them on
      run_ranks(words, *costs->cluster, options_.ranks.timeout());
      stopping_.emplace(caller_);
    }
    measure::RecordedSteps recorded = measure::read_records(records, simulated.plan);
    runtime::Job job;
    job.problem = costs;
    return {.problem = costs,
            .plan = simulated.plan,
            .steps = recorded.steps,
            .seconds = median(recorded.seconds),
            .drift = measure::drift(job, simulated.plan, recorded.steps)};
  }

  void write(const tune::Tuned& tuned) {
    files_.write(options_.profile_out.empty() ? scratch_.path() : options_.profile_out,
                 tuned.fitted);
    const tune::Round& kept = tuned.kept_round();
    write_plan(kept.ran, kept.planned.found_by, *tuned.fitted.problem);
  }

  const TuneVerb& options_;
  const Caller& caller_;
  const compiler::CompileOptions how_;
  ThreadPool threads_;
  const std::shared_ptr<const cost::Problem> believed_;
  std::shared_ptr<const cost::Problem> world_;  // where costs are hidden
  ProfileFiles files_;
  const ScratchFolder scratch_;
  const Stopwatch watch_;
  std::optional<Stopping> stopping_{std::in_place, caller_};  // one at a time in a process
};

std::string off_text(const measure::Drift& off) {
  return fmt::format("{}: {:.2f} times {}", off.what, off.ratio(),
                     milliseconds_text(off.predicted_seconds));
}

// A row as soon as its round is over: rounds may take minutes.
constexpr const char* kRowFormat = "{:>5}  {:>11}  {:>11}  {:>8}  {}\n";

void print_row(const Caller& caller, const tune::Tuned& so_far) {
  const tune::Round& round = so_far.rounds.back();
  const bool first = so_far.rounds.size() == 1;
  print(caller, kRowFormat, so_far.rounds.size(),
        milliseconds_text(to_seconds(round.planned.evaluation.step)),
        milliseconds_text(round.measured_seconds),
        first ? "" : fmt::format("{:+.1f} %", 100 * round.predicted_gain), off_text(round.off));
  std::fflush(stdout);
}

std::string kept_text(const tune::Tuned& tuned) {
  return fmt::format("kept: round {}, {}, measured {:+.1f} % faster than the first ({})",
                     tuned.kept + 1, milliseconds_text(tuned.kept_round().measured_seconds),
                     100 * tuned.gain(), milliseconds_text(tuned.rounds.front().measured_seconds));
}

std::string end_text(const TuneVerb& options, const tune::Tuned& tuned) {
  if (tuned.settled) {
    return fmt::format("ended: a new plan promises {:+.1f} %, less than {:.0f} %\n",
                       100 * tuned.next_gain, 100 * tune::TuneOptions{}.least_gain);
  }
  return fmt::format("ended: after --rounds {}\n", options.rounds);
}

OrderedJson tuned_json(const TuneVerb& options, const cost::Problem& problem,
                       const tune::Tuned& tuned) {
  OrderedJson json = {{"graph", problem.graph->name()},
                      {"cluster", problem.cluster->name()},
                      {"batch", problem.batch},
                      {"rounds", OrderedJson::array()}};
  for (const tune::Round& round : tuned.rounds) {
    json["rounds"].push_back({{"planner", round.planned.found_by},
                              {"predicted_step_seconds", to_seconds(round.planned.evaluation.step)},
                              {"measured_step_seconds", round.measured_seconds},
                              {"predicted_gain", round.predicted_gain},
                              {"off",
                               {{"what", round.off.what},
                                {"predicted_seconds", round.off.predicted_seconds},
                                {"measured_seconds", round.off.measured_seconds}}}});
  }
  json["kept"] = tuned.kept + 1;
  json["kept_step_seconds"] = tuned.kept_round().measured_seconds;
  json["gain"] = tuned.gain();
  json["settled"] = tuned.settled;
  json["next_gain"] = tuned.next_gain;
  if (!options.hidden.text.empty()) json["hidden"] = options.hidden.text;
  return json;
}

// What a loop that has ended early leaves, behind its reason.
std::string left_text(const TuneVerb& options, const tune::Tuned& so_far) {
  if (options.out.empty()) return fmt::format("; round {} was the best", so_far.kept + 1);
  return fmt::format("; {} has the plan of round {}", printable(options.out, 400), so_far.kept + 1);
}

void check_tune(const TuneVerb& options) {
  VALIDATE(!options.hidden.costs ||
               (!options.ranks.in_threads && options.slow.empty() && !options.any_device),
           "--hidden: given beside an option of runs; nothing is run where costs are hidden");
  VALIDATE(!options.every_plan || options.profile_out.empty(),
           "--profile-out: given beside --every-plan, which fits no costs");
  VALIDATE(!options.every_plan || options.planner != kPortfolio || options.budget.any(),
           "--every-plan: planner {} asks about thousands of plans; expected --evaluations, "
           "--budget, or a planner that tries few, as autosync",
           options.planner);
}

// Rows of the plans that were the fastest so far.
int run_every_plan(const TuneVerb& options, const std::shared_ptr<const cost::Problem>& believed,
                   const Caller& caller) {
  constexpr const char* kPlanRow = "{:>5}  {:>11}  {:>11}\n";
  const bool table = !options.common.json;
  Tuner tuner(options, believed, caller);
  std::int64_t runs = 0, best_run = 0;
  std::optional<tune::TriedPlan> best;
  decide::Strategy best_strategy;
  if (table) print(caller, kPlanRow, "plan", "planned", "measured");
  const auto tried = [&](const tune::TriedPlan& plan) {
    ++runs;
    if (best && plan.measured_seconds >= best->measured_seconds) return;
    best_strategy = plan.strategy;
    best.emplace(best_strategy, plan.predicted_seconds, plan.measured_seconds);
    best_run = runs;
    tuner.write_plan(best_strategy, options.planner, *believed);
    if (!table) return;
    print(caller, kPlanRow, runs, milliseconds_text(plan.predicted_seconds),
          milliseconds_text(plan.measured_seconds));
    std::fflush(stdout);
  };
  try {
    tuner.judge_by_runs(tried);
  } catch (const Error& error) {
    if (!best || options.out.empty()) throw;
    throw Error(error.kind(), fmt::format("{}; {} has plan {}", error.what(),
                                          printable(options.out, 400), best_run));
  }
  if (!table) {
    OrderedJson json = {{"graph", believed->graph->name()},
                        {"cluster", believed->cluster->name()},
                        {"batch", believed->batch},
                        {"planner", options.planner},
                        {"runs", runs},
                        {"kept", best_run},
                        {"predicted_step_seconds", best->predicted_seconds},
                        {"kept_step_seconds", best->measured_seconds}};
    if (!options.hidden.text.empty()) json["hidden"] = options.hidden.text;
    print_json(caller, json);
    return 0;
  }
  print(caller, "kept: plan {} of {}, {}\n", best_run, runs,
        milliseconds_text(best->measured_seconds));
  return 0;
}

int run_tune(TuneVerb options, const Caller& caller) {
  check_tune(options);
  check_processes(options.ranks, caller);
  options.problem.max_groups = kAllGroups;
  if (!options.out.empty()) expect_writable(options.out);
  if (!options.profile_out.empty()) make_folder(options.profile_out);
  const std::shared_ptr<const cost::Problem> believed =
      loading::load_problem_file(options.problem).problem;
  const bool table = !options.common.json;
  if (table) {
    print(caller, "{} on {}, batch {}: {}\n", believed->graph->name(), believed->cluster->name(),
          believed->batch,
          options.hidden.costs ? fmt::format("simulated, hidden costs {}", options.hidden.text)
                               : fmt::format("{} steps of each plan, {}", options.steps,
                                             options.ranks.in_threads ? "threads" : "processes"));
    if (!options.every_plan) {
      print(caller, kRowFormat, "round", "planned", "measured", "promised", "farthest off");
    }
    std::fflush(stdout);
  }
  if (options.every_plan) return run_every_plan(options, believed, caller);
  Tuner tuner(options, believed, caller);
  std::optional<tune::Tuned> so_far;
  tune::Tuned tuned;
  std::optional<double> known;
  try {
    tuned = tuner.run([&](const tune::Tuned& now) {
      so_far = now;
      if (table) print_row(caller, now);
    });
    if (options.known) known = tuner.known_seconds(tuned, *options.known);
  } catch (const Error& error) {
    if (!so_far) throw;
    if (!table) print_json(caller, tuned_json(options, *believed, *so_far));
    throw Error(error.kind(), error.what() + left_text(options, *so_far));
  }
  if (!table) {
    OrderedJson json = tuned_json(options, *believed, tuned);
    if (known) json["known_step_seconds"] = *known;
    print_json(caller, json);
    return 0;
  }
  print(caller, "{}", end_text(options, tuned));
  if (known) print(caller, "best known under the hidden costs: {}\n", milliseconds_text(*known));
  print(caller, "{}\n", kept_text(tuned));
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TuneVerb>();
  CLI::App& verb = *app.add_subcommand(
      "tune", "Plans, runs the plan, fits costs to what it took, and plans again");
  add_graph_and_cluster(verb, options->problem);
  add_batch(verb, options->problem);
  add_compress(verb, options->problem);
  verb.add_option("--out", options->out,
                  "Plan file to write: the one whose step was measured to be the shortest");
  verb.add_option("--profile-out", options->profile_out,
                  "Folder for the fitted costs, each file a --profile, as of run --profile-out");
  add_integer(verb, "--rounds", options->rounds, {1, 1000}, "Plans that are run at most");
  verb.add_flag(
          "--every-plan", options->every_plan,
          "In place of rounds: run every plan that --planner asks about, and keep the fastest; "
          "for planners that try few, as autosync, and with --evaluations")
      ->excludes("--rounds");
  add_integer(verb, "--steps", options->steps, kCounts,
              "Steps of each run; the first warms up where there are others");
  verb.add_option("--planner", options->planner, kPlannerHelp)->capture_default_str();
  verb.add_option("--policy", options->policy,
                  "Checkpoint of --planner policy (default: the shipped one)");
  add_budget(verb, options->budget);
  add_integer(verb, "--operator-threads", options->operator_threads, {0, kThreads.most},
              "Threads of one operator of one rank; 0: an equal share of the processors");
  verb.add_option("--slow", options->slow,
                  "DEVICE=FACTOR: the device repeats its work, to try out unequal devices");
  verb.add_flag("--any-device", options->any_device,
                "Let ranks be other devices than the plan's, as heterog run does");
  add_local_ranks(verb, options->ranks);
  add_hidden(verb, options->hidden);
  add_integer(verb, "--known", options->known, kCounts,
              "Also say the shortest step that searches by the hidden costs find, in so many plans")
      ->needs("--hidden");
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog tune --graph models/lenet5-tiny.json.gz "
      "--cluster configs/clusters/local-2cpu.json --batch 16 --out plan.json\n"
      "Ctrl-C ends it with exit code 4; plan and profiles of the rounds before are there.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_tune(*options, caller); };
  });
}

}  // namespace heterog::cli

// heterog train: pretraining of the policy on the graphs and clusters of a config.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/signals.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/torch/processes.h"
#include "cli/torch/training.h"
#include "cli/verbs.h"
#include "launch/children.h"
#include "launch/rank_device.h"
#include "learn/api.h"
#include "learn/reinforce/team.h"

namespace heterog::cli {

namespace {

struct TrainVerbOptions {
  CommonOptions common;
  std::string config;
  std::string out;
  std::vector<std::string> set;
  bool resume = false;
  bool gpu = false;
  bool seed_given = false;
  bool threads_given = false;
  ProcessOptions ranks;
  int processes = 0;  // as many as a starter has started
};

// Ranks wait for each other while they simulate; one that is killed is missed at once all the same.
constexpr double kPatienceSeconds = 3600;
// A step on large clusters, and a checkpoint, may take as long once a signal has come.
constexpr std::chrono::milliseconds kToSave{60'000};

std::vector<std::pair<std::string, std::string>> overrides(const TrainVerbOptions& options) {
  std::vector<std::pair<std::string, std::string>> pairs = settings(options.set, "--set steps=100");
  if (options.seed_given) pairs.emplace_back("seed", std::to_string(options.common.seed));
  return pairs;
}

// A signal that comes while it trains is noted in `signals`, and the run stops with a checkpoint.
// `team`: null for a process that trains alone.
learn::TrainSummary train_until_told(const learn::TrainConfig& config,
                                     const TrainVerbOptions& options, int threads, int local_rank,
                                     learn::Team* team, const NotedSignals& signals,
                                     const Caller& caller) {
  Progress progress(caller, "training");
  return learn::train(
      config, {.out_dir = options.out,
               .start = options.resume ? learn::StartFrom::kCheckpoint : learn::StartFrom::kScratch,
               .threads = threads,
               .progress =
                   [&](const learn::TrainProgress& now) {
                     progress.show(share_done(now), progress_text(now));
                   },
               .stopped = [&] { return signals.noted() || (caller.stopped && caller.stopped()); },
               .gpu = gpu_for_passes(options.gpu, local_rank),
               .team = team});
}

void expect_finished(const learn::TrainSummary& summary, const learn::TrainConfig& config,
                     const NotedSignals& signals) {
  if (!summary.stopped) return;
  const std::optional<int> signal = signals.noted();
  throw Error(
      ErrorKind::kVerification,
      fmt::format(
          "stopped{} after step {} of {}; the same command with --resume goes on from there",
          signal ? " by " + launch::signal_text(*signal) : "", summary.steps, config.steps));
}

void print_summary(const learn::TrainSummary& summary, double seconds, bool as_json,
                   const Caller& caller) {
  if (as_json) {
    OrderedJson json;
    json["policy"] = summary.policy_path;
    json["steps"] = summary.steps;
    json["evaluations"] = summary.evaluations;
    json["train_seconds"] = seconds;
    json["cases"] = cases_json(summary.cases);
    print_json(caller, json);
  } else {
    print(caller, "{} steps, {} plans simulated, {}; policy in {}\n{}", summary.steps,
          summary.evaluations, duration_text(seconds), summary.policy_path,
          cases_text(summary.cases));
  }
}

int train_alone(const learn::TrainConfig& config, const TrainVerbOptions& options,
                const Caller& caller) {
  const Stopwatch watch;
  const NotedSignals signals;
  const learn::TrainSummary summary =
      train_until_told(config, options, options.common.threads, 0, nullptr, signals, caller);
  expect_finished(summary, config, signals);
  print_summary(summary, watch.seconds(), options.common.json, caller);
  return 0;
}

int train_one_rank(const learn::TrainConfig& config, const TrainVerbOptions& options,
                   const launch::RankPlace& place, const Caller& caller) {
  const Stopwatch watch;
  const launch::Joined joined = join_equal_ranks("train", place, options.ranks);
  const NotedSignals signals;  // from now on; before, there is nothing to save
  learn::TrainSummary summary;
  joined.transport->run_until_finished([&] {
    const auto team = learn::make_team(joined.transport->get(), place.rank, place.world_size);
    const int threads = launch::operator_threads(options.threads_given ? options.common.threads : 0,
                                                 joined.ranks_here);
    summary =
        train_until_told(config, options, threads, place.local_rank, team.get(), signals, caller);
  });
  expect_finished(summary, config, signals);
  if (place.rank == 0) print_summary(summary, watch.seconds(), options.common.json, caller);
  return 0;
}

int run_train(TrainVerbOptions& options, const Caller& caller) {
  options.ranks.processes = options.processes > 0;
  check_processes(options.ranks, caller);
  const learn::TrainConfig config = learn::read_train_config(options.config, overrides(options));
  const auto place = own_place(options.ranks, caller);
  const int ranks = place ? place->world_size : std::max(options.processes, 1);
  gpu_for_passes(options.gpu, 0);  // before ranks are started
  if (ranks == 1) return train_alone(config, options, caller);
  if (place) return train_one_rank(config, options, *place, caller);
  start_equal_ranks(options.ranks, ranks, kToSave);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TrainVerbOptions>();
  CLI::App& verb = *app.add_subcommand("train", "Pretrains the policy on a zoo of models");
  verb.add_option("--config", options->config,
                  "Training config: a file, or a shipped one by its name (configs/train/*.json)")
      ->required();
  verb.add_option("--out", options->out, "Folder of the run: checkpoints, log, config as resolved")
      ->required();
  verb.add_option("--set", options->set, "key=value in place of the config's, may be repeated");
  verb.add_flag("--resume", options->resume,
                "Go on from the last checkpoint in --out; anew where there is none yet");
  verb.add_flag("--gpu", options->gpu, kGpuHelp);
  options->ranks.timeout_seconds = kPatienceSeconds;
  add_process_count(verb, options->ranks, options->processes);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog train --config configs/train/small.json --out runs/small "
      "--set steps=50\nKilled at any moment, it goes on to the same bits with --resume; Ctrl-C and "
      "SIGTERM save a checkpoint first.\nWith --processes, or started by torchrun, Slurm or "
      "mpirun, "
      "processes share the work; the result is the same bits for any number of them. Rank 0 alone "
      "reads and writes files of the run (docs/policy.md).");
  verb.callback([options, &chosen, &verb] {
    options->seed_given = verb.count("--seed") > 0;
    options->threads_given = verb.count("--threads") > 0;
    chosen = [options](const Caller& caller) { return run_train(*options, caller); };
  });
}

}  // namespace heterog::cli

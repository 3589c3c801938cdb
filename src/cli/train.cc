// heterog train: pretraining of the policy on the graphs and clusters of a config.
#include <fmt/format.h>

#include <memory>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/training.h"
#include "cli/verbs.h"
#include "policy/api.h"
#include "policy/move_training.h"

namespace heterog::cli {

namespace {

struct TrainVerbOptions {
  CommonOptions common;
  std::string config;
  std::string out;
  std::vector<std::string> set;
  std::string lessons;
  bool resume = false;
  bool moves = false;
  bool seed_given = false;
};

std::vector<std::pair<std::string, std::string>> overrides(const TrainVerbOptions& options) {
  std::vector<std::pair<std::string, std::string>> pairs = settings(options.set, "--set steps=100");
  if (options.seed_given) pairs.emplace_back("seed", std::to_string(options.common.seed));
  return pairs;
}

int run_train_moves(const policy::TrainConfig& config, const TrainVerbOptions& options,
                    const Caller& caller) {
  policy::MoveTrainSummary summary;
  const Stopwatch watch;
  {
    Progress progress(caller, "searching");
    summary =
        policy::train_moves(config, {.out_dir = options.out,
                                     .threads = options.common.threads,
                                     .log = options.lessons,
                                     .progress = [&](double part) {
                                       progress.show(part, fmt::format("{:.0f} %", 100 * part));
                                     }});
  }
  if (options.common.json) {
    OrderedJson json;
    json["scorer"] = summary.path;
    json["problems"] = summary.problems;
    json["moves"] = summary.moves;
    json["helped"] = summary.helped;
    json["auc"] = summary.auc;
    json["kept"] = summary.kept;
    json["train_seconds"] = watch.seconds();
    print_json(caller, json);
  } else {
    print(
        caller,
        "{} moves on {} problems, of which {:.1f} % helped, {}; scorer in {}\non problems that it "
        "was not fitted to: AUC {:.3f}, a move that helps among the best quarter in {:.0f} % of "
        "rounds with one",
        summary.moves, summary.problems, 100 * summary.helped, duration_text(watch.seconds()),
        summary.path, summary.auc, 100 * summary.kept);
  }
  return 0;
}

int run_train(const TrainVerbOptions& options, const Caller& caller) {
  const policy::TrainConfig config = policy::read_train_config(options.config, overrides(options));
  if (options.moves) {
    return run_train_moves(config, options, caller);
  }
  policy::TrainSummary summary;
  const Stopwatch watch;
  {
    Progress progress(caller, "training");
    summary = policy::train(config, {.out_dir = options.out,
                                     .start = options.resume ? policy::StartFrom::kCheckpoint
                                                             : policy::StartFrom::kScratch,
                                     .threads = options.common.threads,
                                     .lessons = options.lessons,
                                     .progress = [&](const policy::TrainProgress& now) {
                                       progress.show(share_done(now), progress_text(now));
                                     }});
  }
  if (options.common.json) {
    OrderedJson json;
    json["policy"] = summary.policy_path;
    json["steps"] = summary.steps;
    json["evaluations"] = summary.evaluations;
    json["train_seconds"] = watch.seconds();
    json["cases"] = cases_json(summary.cases);
    print_json(caller, json);
  } else {
    print(caller, "{} steps, {} plans simulated, {}; policy in {}\n{}", summary.steps,
          summary.evaluations, duration_text(watch.seconds()), summary.policy_path,
          cases_text(summary.cases));
  }
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TrainVerbOptions>();
  CLI::App& verb = *app.add_subcommand("train", "Pretrains the policy on a zoo of models");
  verb.add_option("--config", options->config, "Training config (configs/train/*.json)")
      ->required();
  verb.add_option("--out", options->out, "Folder of the run: checkpoints, log, config as resolved")
      ->required();
  verb.add_option("--set", options->set, "key=value in place of the config's, may be repeated");
  verb.add_option(
      "--lessons", options->lessons,
      "A train.ckpt of an earlier run, whose teacher's plans are taken; with --moves its "
      "moves.log");
  verb.add_flag("--resume", options->resume,
                "Go on from the last checkpoint in --out; anew where there is none yet");
  verb.add_flag("--moves", options->moves,
                "Learn which moves help a search, in place of what to propose");
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog train --config configs/train/small.json --out runs/small "
      "--set steps=50\nKilled at any moment, it goes on to the same bits with --resume.");
  verb.callback([options, &chosen, &verb] {
    options->seed_given = verb.count("--seed") > 0;
    chosen = [options](const Caller& caller) { return run_train(*options, caller); };
  });
}

}  // namespace heterog::cli

// Pretraining on the cases of a config, and fine-tuning on one problem (HeteroG §4.1.3).
#include <ATen/Version.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "learn/api.h"
#include "learn/checkpoint_io.h"
#include "learn/policy_impl.h"
#include "learn/reinforce/learner.h"
#include "learn/train_log_io.h"

namespace heterog::learn {
namespace {

// Of what ranks tell each other while they train: counts up whenever two builds would
// misunderstand.
constexpr int kExchange = 5;
// In fine-tuning: trained weights go on from a small step, and hardly lack exploration.
constexpr double kFinetuneLearningRate = 1e-3;
constexpr double kFinetuneEntropyWeight = 0.005;

// Owned by one run: where it writes.
class RunFolder {
 public:
  explicit RunFolder(const std::string& path) : path_(path) { make_folder(path); }
  std::string checkpoint() const { return path_ + "/train.ckpt"; }
  std::string policy() const { return path_ + "/policy.ckpt"; }

  // Whether a run of these settings that was stopped has left something to go on from. One that was
  // stopped before its first checkpoint is begun anew.
  bool can_resume(const TrainConfig& config) const {
    if (std::filesystem::exists(checkpoint())) return true;
    VALIDATE(!std::filesystem::exists(path_ + "/config.json") ||
                 read_train_config(path_ + "/config.json", {}) == config,
             "{}/config.json: the run was started with other settings; resume with these, or start "
             "anew",
             path_);
    return false;
  }
  void begin(const TrainConfig& config) {
    write_file(path_ + "/config.json", train_config_text(config));
  }

  void open_log(std::int64_t step) {
    write_file(path_ + "/train.log", log_up_to(path_ + "/train.log", step));
  }
  void log(const TrainProgress& progress) { new_lines_ += log_line(progress); }
  // The log first: a checkpoint never speaks of steps that the log lacks.
  void save(Learner& learner, const Cases& cases) {
    append_file(path_ + "/train.log", new_lines_);
    new_lines_.clear();
    save_learner(learner, cases, checkpoint());
  }

 private:
  std::string path_;
  std::string new_lines_;  // of the log, since the last checkpoint
};

// Of the cases that some step has visited.
TrainSummary summarize(const Learner& learner, const Cases& cases) {
  TrainSummary summary{.steps = learner.step, .evaluations = learner.evaluations};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseState& state = learner.states[i];
    if (state.baseline.step == 0) continue;
    CaseProgress progress{.name = cases.name(i)};
    if (state.best && state.best->evaluation.feasible) {
      progress.best_step_seconds = to_seconds(state.best->evaluation.step);
    }
    if (state.baseline.feasible) {
      progress.baseline_step_seconds = to_seconds(state.baseline.step);
    }
    summary.cases.push_back(progress);
  }
  return summary;
}

std::string_view bytes_of(const torch::Tensor& tensor) {
  EXPECT(tensor.is_contiguous());
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

std::uint64_t digest(std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.value();
}

// Of all that a rank's steps are made from.
std::uint64_t digest(const Cases& cases) {
  Hasher hasher;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    hasher.add(cases.name(i));
    hasher.add(cases.hash(i));
  }
  return hasher.value();
}

std::uint64_t digest(const Learner& learner) {
  Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(learner.evaluations));
  for (const torch::Tensor& parameter : learner.network->parameters()) {
    hasher.add(bytes_of(parameter));
  }
  return hasher.value();
}

// Before a rank reads files that others may lack.
void expect_same_settings(Team& team, const TrainConfig& config) {
  const Agreed agreed[] = {
      {digest(fmt::format("{} {}", kExchange, learn::kFeatureVersion)),
       "runs another build of heterog than rank 0; all ranks run the same"},
      {digest(at::show_config()),
       "has another build of PyTorch than rank 0, or another kind of processor, and would compute "
       "other bits; train on hosts that are alike"},
      {digest(train_config_text(config)),
       "was given another config than rank 0; all ranks are given the same --config, --set and "
       "--seed"}};
  expect_agreed(team, agreed);
}

void expect_same_cases(Team& team, const Cases& cases) {
  if (team.size() == 1) return;
  const Agreed agreed[] = {
      {digest(cases),
       "has other graphs, clusters or devices than rank 0 under the names of the config"}};
  expect_agreed(team, agreed);
}

// All that rank 0 knows, on every rank.
Learner shared_by_first(Team& team, Learner learner, Cases& cases) {
  if (team.size() == 1) return learner;
  std::string bytes = team.rank() == 0 ? pack_learner(learner, cases) : "";
  const auto own =
      torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
  const torch::Tensor first = team.gather(own)[0];
  if (team.rank() == 0) return learner;
  return unpack_learner(learner.config, cases, std::string(bytes_of(first)),
                        "what rank 0 goes on from");
}

// `folder`: of rank 0, else null.
Learner first_state(const TrainConfig& config, const TrainOptions& options, Cases& cases,
                    RunFolder* folder, Team& team) {
  Learner learner(config);
  learner.states.resize(cases.size());
  if (folder != nullptr) {
    if (options.start == StartFrom::kCheckpoint && folder->can_resume(config)) {
      learner = load_learner(config, cases, folder->checkpoint());
    } else {
      folder->begin(config);
    }
    folder->open_log(learner.step);
  }
  return shared_by_first(team, std::move(learner), cases);
}

// Whether any rank is told to stop. All have come to the same bits, or this throws.
bool stop_together(Team& team, const Learner& learner, const std::function<bool()>& stopped) {
  const bool stop = stopped && stopped();
  if (team.size() == 1) return stop;
  const auto all =
      gather_numbers(team, {stop ? 1 : 0, std::bit_cast<std::int64_t>(digest(learner))});
  bool any = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    any = any || all[rank][0] != 0;
    if (all[rank][1] == all[0][1]) continue;
    throw Error(ErrorKind::kVerification,
                fmt::format("rank {}: has come to other weights than rank 0 in step {}: its "
                            "processor computes other bits; train on hosts that are alike",
                            rank, learner.step));
  }
  return any;
}

// The network of the mean of weights, or the learner's own if there is none.
PolicyNetwork averaged(const Learner& learner) {
  if (learner.mean.empty()) return learner.network;
  PolicyNetwork network = clone(learner.network, learner.config);
  const torch::NoGradGuard no_grad;
  const auto weights = network->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i].copy_(learner.mean[i]);
  return network;
}

std::optional<NetworkCopy> copy_on(std::optional<int> gpu, const TrainConfig& config) {
  if (!gpu) return std::nullopt;
  return NetworkCopy(config, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(*gpu)));
}

}  // namespace

TrainSummary train(const TrainConfig& config, const TrainOptions& options) {
  use_one_network_thread();
  Team& team = options.team != nullptr ? *options.team : alone();
  expect_same_settings(team, config);
  Cases cases(config, options.stopped);
  expect_same_cases(team, cases);
  std::optional<RunFolder> folder;  // of rank 0
  if (team.rank() == 0) folder.emplace(options.out_dir);
  ThreadPool threads(options.threads);
  Learner learner = first_state(config, options, cases, folder ? &*folder : nullptr, team);
  std::optional<NetworkCopy> copy = copy_on(options.gpu, config);
  const LearningContext context{
      .cases = cases,
      .measure = simulated(threads, static_cast<int>(config.settling_rounds)),
      .team = team,
      .copy = copy ? &*copy : nullptr};
  bool stopped = false;
  while (learner.step < config.steps && !stopped) {
    const TrainProgress progress =
        learn_step(learner, context, entropy_weight_at(config, learner.step));
    note_weights(learner);
    stopped = stop_together(team, learner, options.stopped);
    if (folder) folder->log(progress);
    const bool due = learner.step % config.checkpoint_every == 0 || learner.step == config.steps;
    if (folder && (due || stopped)) {
      folder->save(learner, cases);
      logger().info("step {} of {}: saved to {}", learner.step, config.steps, folder->checkpoint());
    }
    if (options.progress) options.progress(progress);
  }
  TrainSummary summary = summarize(learner, cases);
  summary.stopped = learner.step < config.steps;
  summary.policy_path = options.out_dir + "/policy.ckpt";
  if (folder && !summary.stopped) save_policy(averaged(learner), config, folder->policy());
  return summary;
}

FinetuneResult finetune(const Policy& policy, oracle::Oracle& oracle,
                        const FinetuneOptions& options) {
  VALIDATE(options.budget.limited(), "finetune: needs a budget, of seconds or of evaluations");
  use_one_network_thread();
  TrainConfig config = with_learning(policy.config(), options.learning);
  // All 64 bits: seeds of planners are themselves random numbers.
  config.seed = std::bit_cast<std::int64_t>(options.seed);
  config.cases_per_step = 1;
  config.learning_rate = kFinetuneLearningRate;
  config.samples = std::min(config.samples, options.budget.evaluations.value_or(config.samples));
  VALIDATE(config.samples > 0, "finetune: a budget of 0 evaluations; give at least 1");

  oracle::BatchEvaluator evaluator(oracle);
  const bool formula = begins_as_formula(config);  // its schedules are knobs
  Cases cases(
      config,
      make_case(options.name, regrouped(oracle.problem(), static_cast<int>(config.max_groups)),
                formula ? decide::OrderPolicy::kRankQueued : find_order(evaluator), config));
  Learner learner(config);
  learner.network = clone(policy.impl().network, config);
  learner.optimizer = torch::optim::Adam(learner.network->parameters(),
                                         torch::optim::AdamOptions(config.learning_rate));
  learner.states.resize(1);
  std::optional<NetworkCopy> copy = copy_on(options.gpu, config);
  const LearningContext context{.cases = cases,
                                .measure =
                                    [&](const Case&, std::span<const decide::Strategy> strategies) {
                                      return oracle.measure(strategies);
                                    },
                                .draws = DrawnBy::kRunsAndEdits,
                                .entropy_floor = config.finetune_entropy_floor,
                                .copy = copy ? &*copy : nullptr};

  // At most a quarter of the budget.
  constexpr std::int64_t kMostProposals = 32;
  const std::int64_t count = std::clamp<std::int64_t>(
      options.budget.evaluations.value_or(4 * kMostProposals) / 4, 1, kMostProposals);
  const std::vector<Actions> proposals = likely_strategies(
      cases[0], say(learner.network, cases[0].features), static_cast<std::size_t>(count));
  keep_best(learner.states[0].best, proposals,
            evaluate_samples(cases[0], proposals, context.measure));
  learner.evaluations += static_cast<std::int64_t>(proposals.size());
  const auto spent = [&] {
    if (options.budget.expired()) return true;
    return options.budget.evaluations &&
           learner.evaluations + config.samples > *options.budget.evaluations;
  };
  TrainProgress progress;
  std::optional<std::int64_t> collapsed_after;
  do {
    progress = learn_step(learner, context, kFinetuneEntropyWeight);
    if (!collapsed_after && progress.entropy < kCollapsedNats) {
      collapsed_after = learner.evaluations;
    }
    progress.steps = options.budget.evaluations.value_or(0) / config.samples;
    if (options.progress) options.progress(progress);
  } while (!spent());
  if (collapsed_after && *collapsed_after < learner.evaluations) {
    logger().warn(
        "fine-tuning: the entropy fell under {} nats a group after {} of {} plans: what was drawn "
        "from then on hardly differs; a higher finetune_entropy_floor holds it up",
        kCollapsedNats, *collapsed_after, learner.evaluations);
  }

  const Scored& best = *learner.states[0].best;
  const Said said = say(learner.network, cases[0].features);
  const Actions likely = likely_strategies(cases[0], said, 1).front();
  return {.policy = make_policy(policy.config(), learner.network),
          .strategy = standalone_strategy(cases[0], best.actions),
          .evaluation = best.evaluation,
          .evaluations = learner.evaluations,
          .entropy = progress.entropy,
          .collapsed_after = collapsed_after,
          .mean_step_seconds = progress.cases[0].mean_step_seconds,
          .likely = standalone_strategy(cases[0], likely)};
}

}  // namespace heterog::learn

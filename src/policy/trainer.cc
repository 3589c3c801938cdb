// Pretraining on the cases of a config, and fine-tuning on one problem (HeteroG §4.1.3).
#include <bit>
#include <filesystem>

#include "base/file.h"
#include "planner/starts.h"
#include "policy/api.h"
#include "policy/checkpoint_io.h"
#include "policy/decode.h"
#include "policy/learner.h"
#include "policy/policy_impl.h"
#include "policy/teacher.h"
#include "policy/train_log_io.h"

namespace heterog::policy {
namespace {

// Owned by one run: where it writes.
class RunFolder {
 public:
  explicit RunFolder(const std::string& path) : path_(path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    VALIDATE(!error, "{}: cannot be made: {}; name a folder that can be written", path,
             error.message());
  }
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
  void save(Learner& learner, std::span<const Case> cases) {
    append_file(path_ + "/train.log", new_lines_);
    new_lines_.clear();
    save_learner(learner, cases, checkpoint());
  }

 private:
  std::string path_;
  std::string new_lines_;  // of the log, since the last checkpoint
};

// Of the cases that some step has visited.
TrainSummary summarize(const Learner& learner, std::span<const Case> cases) {
  TrainSummary summary{.steps = learner.step, .evaluations = learner.evaluations};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseState& state = learner.states[i];
    if (state.baseline.step == 0) continue;
    CaseProgress progress{.name = cases[i].name};
    if (!state.best.empty() && state.best[0].evaluation.feasible) {
      progress.best_step_seconds = to_seconds(state.best[0].evaluation.step);
    }
    if (state.lesson) progress.taught_step_seconds = state.lesson->step_seconds;
    if (state.baseline.feasible) {
      progress.baseline_step_seconds = to_seconds(state.baseline.step);
    }
    summary.cases.push_back(progress);
  }
  return summary;
}

// As the config says, but not for hours on the largest clusters.
std::int64_t lesson_evaluations(const Case& c, const TrainConfig& config) {
  constexpr std::int64_t kShots = 3;
  return std::min(config.teacher_evaluations, kShots * planner::one_shot_evaluations(*c.problem));
}

}  // namespace

TrainSummary train(const TrainConfig& config, const TrainOptions& options) {
  use_one_network_thread();
  const std::vector<Case> cases = load_cases(config);
  RunFolder folder(options.out_dir);
  ThreadPool threads(options.threads);
  Learner learner(config);
  learner.states.resize(cases.size());
  if (options.start == StartFrom::kCheckpoint && folder.can_resume(config)) {
    learner = load_learner(config, cases, folder.checkpoint());
  } else {
    folder.begin(config);
    if (!options.lessons.empty()) load_lessons(cases, options.lessons, learner);
  }
  folder.open_log(learner.step);
  const auto teach_cases = [&](std::span<const std::size_t> asked) {
    std::vector<std::optional<Lesson>> lessons(asked.size());
    threads.run(asked.size(), [&](int, std::size_t i) {
      const Case& c = cases[asked[i]];
      lessons[i] = teach(c, lesson_evaluations(c, config),
                         random_stream(config, RandomStream::kTeacher).split(asked[i]));
    });
    return lessons;
  };
  const LearningContext context{
      .cases = cases, .measure = simulated(threads), .teach = teach_cases};
  while (learner.step < config.steps) {
    const TrainProgress progress =
        learn_step(learner, context, entropy_weight_at(config, learner.step));
    folder.log(progress);
    if (learner.step % config.checkpoint_every == 0 || learner.step == config.steps) {
      folder.save(learner, cases);
    }
    if (options.progress) options.progress(progress);
  }
  save_policy(learner.network, config, folder.policy());
  TrainSummary summary = summarize(learner, cases);
  summary.policy_path = folder.policy();
  return summary;
}

FinetuneResult finetune(const Policy& policy, oracle::Oracle& oracle,
                        const FinetuneOptions& options) {
  VALIDATE(options.budget.limited(), "finetune: needs a budget, of seconds or of evaluations");
  use_one_network_thread();
  TrainConfig config = with_learning(policy.config(), options.learning);
  if (config.finetune_groups > 0) {
    config.max_groups = std::min(config.max_groups, config.finetune_groups);
  }
  // All 64 bits: seeds of planners are themselves random numbers.
  config.seed = std::bit_cast<std::int64_t>(options.seed);
  config.cases_per_step = 1;
  config.learning_rate = config.finetune_learning_rate;
  config.draws = config.finetune_draws;
  config.elite_weight = config.finetune_elite_weight;
  config.teacher_evaluations = 0;
  if (config.samples == 0) config.samples = TrainConfig{}.samples;
  config.samples = std::min(config.samples, options.budget.evaluations.value_or(config.samples));
  VALIDATE(config.samples > 0, "finetune: a budget of 0 evaluations; give at least 1");

  std::vector<Case> cases;
  oracle::BatchEvaluator evaluator(oracle);
  cases.push_back(make_case(options.name,
                            regrouped(oracle.problem(), static_cast<int>(config.max_groups)),
                            find_order(evaluator, config.order), action_table(config)));
  Learner learner(config);
  learner.network = clone(policy.impl().network, config);
  learner.optimizer = torch::optim::Adam(learner.network->parameters(),
                                         torch::optim::AdamOptions(config.learning_rate));
  learner.states.resize(1);
  const LearningContext context{
      .cases = cases, .measure = [&](const Case&, std::span<const compiler::Strategy> strategies) {
        return oracle.measure(strategies);
      }};

  if (config.finetune_proposals) {
    const std::vector<Actions> proposals =
        decode_proposals(learner.network->forward(cases[0].features), cases[0].group_weights);
    keep_best(learner.states[0].best, proposals,
              evaluate_samples(cases[0], proposals, context.measure), elites_kept(config));
    learner.evaluations += static_cast<std::int64_t>(proposals.size());
  }
  const auto spent = [&] {
    if (options.budget.expired()) return true;
    return options.budget.evaluations &&
           learner.evaluations + config.samples > *options.budget.evaluations;
  };
  TrainProgress progress;
  do {
    progress = learn_step(learner, context, config.finetune_entropy_weight);
    progress.steps = options.budget.evaluations.value_or(0) / config.samples;
    if (options.progress) options.progress(progress);
  } while (!spent());

  const Scored& best = learner.states[0].best[0];
  const std::vector<Actions> likely = {most_likely(learner.network->forward(cases[0].features))};
  TrainConfig saved = policy.config();  // fine-tuning does not change what the policy was made with
  return {.policy = make_policy(saved, learner.network),
          .strategy = standalone_strategy(cases[0], best.actions),
          .evaluation = best.evaluation,
          .evaluations = learner.evaluations,
          .entropy = progress.entropy,
          .mean_step_seconds = progress.cases[0].mean_step_seconds,
          .likely = evaluate_samples(cases[0], likely, context.measure)[0]};
}

}  // namespace heterog::policy

// Everything that learning changes, and one step of it; pretraining and fine-tuning share it.
#include "policy/learner.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"

namespace heterog::policy {
namespace {

constexpr std::uint64_t kEdits = 1u << 20;  // their stream of random numbers, beyond any sample's

double mean_step_seconds(std::span<const planner::Evaluation> evaluations) {
  double sum = 0;
  for (const planner::Evaluation& e : evaluations) sum += to_seconds(e.step);
  return sum / static_cast<double>(evaluations.size());
}

double feasible_seconds(const planner::Evaluation& e) {
  return e.feasible ? to_seconds(e.step) : 0.0;
}

std::vector<Actions> elites_of(const CaseState& state, const TrainConfig& config) {
  std::vector<Actions> elites;
  for (const Scored& scored : state.best) {
    if (static_cast<std::int64_t>(elites.size()) < config.elite_count) {
      elites.push_back(scored.actions);
    }
  }
  return elites;
}

// How many of a step's strategies are edits of the best so far, the last ones: none before anything
// is known.
std::int64_t edits_of(const TrainConfig& config, const CaseState& state) {
  if (state.best.empty()) return 0;
  if (config.draws == "edits") return config.samples;
  return config.draws == "mixed" ? config.samples / 2 : 0;
}

// Strategies of a case by what the network says, and by the best so far.
Draws draw(const TrainConfig& config, const torch::Tensor& log_probabilities,
           const CaseState& state, const Rng& rng) {
  if (config.draws == "groups") {
    return {.actions = sample_actions(log_probabilities, config.samples, rng)};
  }
  const std::int64_t edits = edits_of(config, state);
  Draws draws = draw_runs(log_probabilities, config.samples - edits, rng);
  if (edits > 0)
    append(draws, draw_edits(log_probabilities, state.best[0].actions, edits, rng.split(kEdits)));
  return draws;
}

// What each is worth, `average` with them in it; of the edits, beside what was edited.
std::vector<double> worth(const TrainConfig& config, std::span<const double> rewards,
                          const RewardAverage& average, std::size_t edits, double edited) {
  const std::span<const double> drawn = rewards.first(rewards.size() - edits);
  std::vector<double> all = config.baseline == "others" && drawn.size() > 1
                                ? advantages_over_others(drawn, average, config)
                                : advantages(drawn, average, config);
  const auto of_edits = advantages_over(edited, rewards.last(edits), average, config);
  all.insert(all.end(), of_edits.begin(), of_edits.end());
  return all;
}

// Simulates what everybody knows: the baseline to report, and the first strategies to imitate; and
// what the case's lesson is worth in actions.
void begin_case(Learner& learner, const LearningContext& context, std::size_t index) {
  const Case& c = context.cases[index];
  CaseState& state = learner.states[index];
  const auto plain = plain_strategies(c);
  const auto evaluations = evaluate_samples(c, plain, context.measure);
  learner.evaluations += static_cast<std::int64_t>(plain.size());
  state.baseline = *std::min_element(
      evaluations.begin(), evaluations.begin() + space::kReplicated.size(), planner::better);
  if (learner.config.imitate_plain) {
    keep_best(state.best, plain, evaluations, elites_kept(learner.config));
  }
  if (state.lesson) {
    const std::vector<Actions> taught = {state.lesson->actions};
    keep_best(state.best, taught, evaluate_samples(c, taught, context.measure),
              elites_kept(learner.config));
    ++learner.evaluations;
  }
}

// Asks for the lessons of a step's cases, all at once, so that cores can share them.
void ask_teacher(Learner& learner, const LearningContext& context,
                 std::span<const std::size_t> chosen) {
  if (learner.config.teacher_evaluations == 0) return;
  std::vector<std::size_t> untaught;
  for (std::size_t index : chosen) {
    if (learner.states[index].taught) continue;
    learner.states[index].taught = true;
    untaught.push_back(index);
  }
  const auto lessons = context.teach(untaught);
  for (std::size_t i = 0; i < untaught.size(); ++i) {
    learner.states[untaught[i]].lesson = lessons[i];
  }
}

}  // namespace

std::size_t elites_kept(const TrainConfig& config) {
  return static_cast<std::size_t>(std::max<std::int64_t>(config.elite_count, 1));
}

Learner::Learner(const TrainConfig& config)
    : config(config),
      network(make_network(config, static_cast<std::uint64_t>(config.seed))),
      optimizer(network->parameters(), torch::optim::AdamOptions(config.learning_rate)) {}

std::vector<std::size_t> cases_of_step(const TrainConfig& config, std::size_t cases,
                                       std::int64_t step) {
  std::vector<std::size_t> chosen;
  const auto first = static_cast<std::uint64_t>(step * config.cases_per_step);
  for (std::uint64_t i = first; i < first + static_cast<std::uint64_t>(config.cases_per_step);
       ++i) {
    std::vector<std::size_t> order(cases);
    std::iota(order.begin(), order.end(), 0);
    Rng rng = random_stream(config, RandomStream::kCaseOrder).split(i / cases);
    for (std::size_t k = cases; k > 1; --k) std::swap(order[k - 1], order[rng.below(k)]);
    chosen.push_back(order[i % cases]);
  }
  return chosen;
}

TrainProgress learn_step(Learner& learner, const LearningContext& context, double entropy_weight) {
  const TrainConfig& config = learner.config;
  TrainProgress progress;
  learner.optimizer.zero_grad();
  const auto chosen = cases_of_step(config, context.cases.size(), learner.step);
  ask_teacher(learner, context, chosen);
  const double share = 1.0 / static_cast<double>(chosen.size());
  const Rng rng = random_stream(config, RandomStream::kSampling)
                      .split(static_cast<std::uint64_t>(learner.step));
  for (std::size_t position = 0; position < chosen.size(); ++position) {
    const Case& c = context.cases[chosen[position]];
    CaseState& state = learner.states[chosen[position]];
    if (state.baseline.step == 0) begin_case(learner, context, chosen[position]);
    CaseLossInput input{.log_probabilities = learner.network->forward(c.features)};
    CaseProgress seen{.name = c.name};
    if (config.samples > 0) {
      const auto edits = static_cast<std::size_t>(edits_of(config, state));
      const double edited = edits > 0 ? state.best[0].evaluation.reward : 0;
      input.draws = draw(config, input.log_probabilities, state, rng.split(position));
      const auto evaluations = evaluate_samples(c, input.draws.actions, context.measure);
      keep_best(state.best, input.draws.actions, evaluations, elites_kept(config));
      std::vector<double> rewards;
      for (const planner::Evaluation& e : evaluations) rewards.push_back(e.reward);
      state.average = updated(state.average, rewards, config.baseline_decay);
      input.advantages = worth(config, rewards, state.average, edits, edited);
      progress.mean_reward +=
          share * std::accumulate(rewards.begin(), rewards.end(), 0.0) / rewards.size();
      seen.mean_step_seconds = mean_step_seconds(evaluations);
    }
    if (learner.step >= config.elite_from) input.elites = elites_of(state, config);
    if (state.lesson) {
      input.lesson = state.lesson->actions;
      input.lesson_weights = c.group_weights;
    }
    const CaseLoss loss = case_loss(
        input, entropy_weight, {.elites = config.elite_weight, .lesson = config.teacher_weight},
        {.floor = config.entropy_floor, .weight = config.entropy_floor_weight});
    (loss.loss * share).backward();  // gradients of the cases add up

    learner.evaluations += config.samples;
    progress.loss += share * loss.loss.item<double>();
    progress.entropy += share * loss.entropy.item<double>();
    if (!state.best.empty()) {
      seen.best_step_seconds = feasible_seconds(state.best[0].evaluation);
    }
    if (state.lesson) seen.taught_step_seconds = state.lesson->step_seconds;
    seen.baseline_step_seconds = feasible_seconds(state.baseline);
    progress.cases.push_back(std::move(seen));
  }
  torch::nn::utils::clip_grad_norm_(learner.network->parameters(), config.gradient_clip);
  learner.optimizer.step();
  progress.step = ++learner.step;
  progress.steps = config.steps;
  progress.evaluations = learner.evaluations;
  logger().debug("learning step {}: reward {:.6g}, entropy {:.4g}, loss {:.6g}", progress.step,
                 progress.mean_reward, progress.entropy, progress.loss);
  return progress;
}

}  // namespace heterog::policy

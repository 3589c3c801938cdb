// Everything that learning changes, and one step of it; pretraining and fine-tuning share it.
#include "learn/reinforce/learner.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "learn/formula/distribution.h"
#include "learn/reinforce/shared_work.h"
#include "space/cluster_summary.h"

namespace heterog::learn {
namespace {

constexpr std::uint64_t kEdits = 1u << 20;  // their stream of random numbers, beyond any sample's
constexpr std::size_t kOthers = 5;     // draws that a plan of the formula's policy is held against
constexpr double kGradientClip = 1.0;  // of the global norm

double mean_step_seconds(std::span<const search::Evaluation> evaluations) {
  double sum = 0;
  for (const search::Evaluation& e : evaluations) sum += to_seconds(e.step);
  return sum / static_cast<double>(evaluations.size());
}

double feasible_seconds(const search::Evaluation& e) {
  return e.feasible ? to_seconds(e.step) : 0.0;
}

// Notes what has been simulated of a case before its first step: the baseline to report, and the
// first strategies to imitate. `first`: of first_strategies.
void begin_case(Learner& learner, std::size_t index, std::span<const Actions> first,
                std::span<const search::Evaluation> evaluations) {
  CaseState& state = learner.states[index];
  const auto plain = evaluations.first(std::min(evaluations.size(), space::kReplicated.size()));
  state.baseline = *std::ranges::min_element(plain, search::better);
  keep_best(state.best, first, evaluations);
  learner.evaluations += static_cast<std::int64_t>(first.size());
}

// Those of a step that no step before it was about.
void begin_cases(Learner& learner, const LearningContext& context,
                 std::span<const std::size_t> chosen) {
  std::vector<std::size_t> fresh;
  std::vector<Asked> asked;
  for (const std::size_t index : chosen) {
    const CaseState& state = learner.states[index];
    if (state.baseline.step != 0 || std::ranges::find(fresh, index) != fresh.end()) continue;
    fresh.push_back(index);
    const Case& c = context.cases[index];
    asked.push_back({&c, first_strategies(c)});
  }
  if (fresh.empty()) return;
  const auto evaluations = evaluate_together(context.team, context.measure, asked);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    begin_case(learner, fresh[i], asked[i].strategies, evaluations[i]);
  }
}

// The best so far of each position's case as a step begins, if anything is known: what is edited.
// Not what an earlier position of the same step has found, which another rank may be at.
std::vector<std::optional<Scored>> bests(const Learner& learner,
                                         std::span<const std::size_t> chosen) {
  std::vector<std::optional<Scored>> known;
  for (const std::size_t index : chosen) known.push_back(learner.states[index].best);
  return known;
}

// One position of a step: a case, and what has been drawn for it.
struct Turn {
  std::size_t position = 0;
  std::size_t index = 0;  // of the case
  std::optional<Scored> edited;
  Draws draws;  // on the rank that drew them alone
  std::vector<Actions> drawn;
  std::vector<search::Evaluation> evaluations;  // of these
};

// Positions from `first` on, one a rank, as far as they go.
std::vector<Turn> turns_from(std::size_t first, std::span<const std::size_t> chosen,
                             std::span<const std::optional<Scored>> known, const Team& team) {
  std::vector<Turn> turns;
  const std::size_t end = std::min(chosen.size(), first + static_cast<std::size_t>(team.size()));
  for (std::size_t i = first; i < end; ++i) {
    turns.push_back(
        {.position = i, .index = chosen[i], .edited = known[i], .draws = {}, .drawn = {}});
  }
  return turns;
}

// How many of a turn's strategies are edits, the last ones: none before anything is known.
std::int64_t edits_of(const LearningContext& context, const TrainConfig& config, const Turn& turn) {
  if (context.draws != DrawnBy::kRunsAndEdits || !turn.edited) return 0;
  if (!begins_as_formula(config)) return config.samples / 2;
  // Draws are held against so many others.
  const std::int64_t spare = config.samples - static_cast<std::int64_t>(kOthers) - 1;
  return std::clamp(spare, std::int64_t{0}, config.samples / 2);
}

// Actions of a turn's case by what the network says, and by the best so far. Whole plans of the
// formula's policy agree from group to group as they are.
Draws draw_actions(const LearningContext& context, const TrainConfig& config, const Said& said,
                   const Turn& turn, const Rng& rng) {
  const std::int64_t edits = edits_of(context, config, turn);
  if (said.formula) {
    const FormulaTerms& terms = *context.cases[turn.index].formula;
    Draws draws;
    for (const DrawnPlan& plan : draw_plans(terms, *said.formula, config.samples - edits, rng)) {
      draws.actions.push_back(to_actions(terms, plan));
    }
    if (edits == 0) return draws;
    const DrawnPlan best = to_plan(terms, turn.edited->actions);
    for (const DrawnPlan& plan :
         redraw_parts(terms, *said.formula, best, edits, rng.split(kEdits))) {
      draws.actions.push_back(to_actions(terms, plan));
    }
    return draws;
  }
  const torch::Tensor& log_probabilities = said.log_probabilities;
  if (context.draws == DrawnBy::kGroups) {
    return {.actions = sample_actions(log_probabilities, config.samples, rng)};
  }
  Draws draws = draw_runs(log_probabilities, config.samples - edits, rng);
  if (edits > 0) {
    append(draws, draw_edits(log_probabilities, turn.edited->actions, edits, rng.split(kEdits)));
  }
  return draws;
}

// Paper: −√T, ten times that where memory overflows. Of the formula's policy −log T, as a step that
// is a tenth shorter is worth as much on every problem; what does not fit is worth less than three
// times the step would be, and the less the more is missing.
double reward_of(const Case& c, const search::Evaluation& evaluation) {
  if (!c.formula) return evaluation.reward;
  const double reward = -std::log(std::max(1e-9, to_seconds(evaluation.step)));
  if (evaluation.feasible) return reward;
  double capacity = 0;
  for (DeviceId device : c.problem->cluster->device_ids()) {
    capacity += space::capacity_bytes(*c.problem, device);
  }
  return reward - 1 - std::min(3.0, 10 * static_cast<double>(evaluation.missing_bytes) / capacity);
}

// What each strategy of a turn is worth, `average` with them in it; of edits, the last ones, beside
// what was edited.
std::vector<double> worth(const TrainConfig& config, const Turn& turn, std::size_t edits,
                          std::span<const double> rewards, const RewardAverage& average) {
  std::vector<double> all = advantages(rewards.first(rewards.size() - edits), average, config);
  if (edits > 0) {
    const auto of_edits =
        advantages_over(turn.edited->evaluation.reward, rewards.last(edits), average, config);
    all.insert(all.end(), of_edits.begin(), of_edits.end());
  }
  return all;
}

// Samples of all turns, drawn by their owners, and what they are worth. `said`: of
// `own`, the turn of this rank, which may be none.
void draw_and_judge(const Learner& learner, const LearningContext& context, const Said& said,
                    Turn* own, std::span<Turn> turns) {
  const std::int64_t samples = learner.config.samples;
  std::vector<std::vector<Actions>> drawn(turns.size());
  std::vector<std::size_t> groups;
  for (const Turn& turn : turns) {
    groups.push_back(decision_count(context.cases[turn.index]));
  }
  if (own != nullptr) {
    const Rng rng = random_stream(learner.config, RandomStream::kSampling)
                        .split(static_cast<std::uint64_t>(learner.step))
                        .split(own->position);
    own->draws = draw_actions(context, learner.config, said, *own, rng);
    drawn[static_cast<std::size_t>(own - turns.data())] = own->draws.actions;
  }
  gather_samples(context.team, groups, static_cast<std::size_t>(samples), drawn);
  std::vector<Asked> asked;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    asked.push_back({&context.cases[turns[i].index], drawn[i]});
  }
  const auto evaluations = evaluate_together(context.team, context.measure, asked);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    turns[i].drawn = std::move(drawn[i]);
    turns[i].evaluations = evaluations[i];
  }
}

// Notes what a turn's samples are worth, in the state of its case and in the step's progress;
// what its loss is made of, but for the forward pass.
CaseLossInput note_turn(Learner& learner, const LearningContext& context, Turn& turn, double share,
                        TrainProgress& progress) {
  const TrainConfig& config = learner.config;
  const Case& c = context.cases[turn.index];
  CaseState& state = learner.states[turn.index];
  CaseLossInput input{};
  input.formula = c.formula.get();
  CaseProgress seen{.name = c.name};
  keep_best(state.best, turn.drawn, turn.evaluations);
  std::vector<double> rewards;
  for (const search::Evaluation& e : turn.evaluations) rewards.push_back(reward_of(c, e));
  state.average = updated(state.average, rewards);
  const auto edits = static_cast<std::size_t>(edits_of(context, config, turn));
  if (c.formula) {
    // Edits of the best so far are no draws of the policy: they are looked at, and teach nothing.
    const std::size_t drawn = rewards.size() - edits;
    input.advantages = advantages_over_others(std::span(rewards).first(drawn), kOthers);
    if (turn.draws.actions.size() > drawn) turn.draws.actions.resize(drawn);
  } else {
    input.advantages = worth(config, turn, edits, rewards, state.average);
  }
  input.draws = std::move(turn.draws);
  input.elite = state.best->actions;
  progress.mean_reward +=
      share * std::accumulate(rewards.begin(), rewards.end(), 0.0) / rewards.size();
  seen.mean_step_seconds = mean_step_seconds(turn.evaluations);
  seen.best_step_seconds = feasible_seconds(state.best->evaluation);
  seen.baseline_step_seconds = feasible_seconds(state.baseline);
  learner.evaluations += config.samples;
  progress.cases.push_back(std::move(seen));
  return input;
}

void expect_finite(const PositionLoss& position, std::int64_t step, const Case& c) {
  const bool loss = std::isfinite(position.loss);
  if (loss && position.gradient.values.isfinite().all().item<bool>()) return;
  throw Error(ErrorKind::kVerification,
              fmt::format("step {}: the {} of case {} is not a finite number; train anew with a "
                          "lower learning_rate, or look at what the case is made of",
                          step, loss ? "gradient" : "loss", c.name));
}

// Adds the gradients of a round's positions to those of the parameters, and their parts of loss and
// entropy to the step's, one position after another: the bits do not depend on where rounds end.
// `own`: the loss of this rank's position by `network`; null where it has none.
void add_gradients(Learner& learner, const LearningContext& context, std::span<const Turn> turns,
                   const CaseLoss* own, const PolicyNetwork& network, double share,
                   TrainProgress& progress) {
  const auto parameters = learner.network->parameters();
  std::optional<PositionLoss> of_own;
  if (own != nullptr) {
    of_own = PositionLoss{.loss = own->loss.item<double>(),
                          .entropy = own->entropy.item<double>(),
                          .gradient = gradient_of(own->loss * share, network->parameters())};
  }
  const auto losses =
      gather_losses(context.team, turns.size(), of_own ? &*of_own : nullptr, parameters);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    expect_finite(losses[i], learner.step + 1, context.cases[turns[i].index]);
    add_gradient(losses[i].gradient, parameters);
    progress.loss += share * losses[i].loss;
    progress.entropy += share * losses[i].entropy;
  }
}

}  // namespace

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

std::int64_t averaged_behind(const TrainConfig& config) {
  return std::max<std::int64_t>(0, config.steps - config.averaged_steps);
}

void note_weights(Learner& learner) {
  const std::int64_t behind = averaged_behind(learner.config);
  if (learner.step <= behind) return;
  const auto count = static_cast<double>(learner.step - behind);
  const torch::NoGradGuard no_grad;
  const auto weights = learner.network->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (learner.mean.size() == i) learner.mean.push_back(torch::zeros_like(weights[i]));
    learner.mean[i] += (weights[i] - learner.mean[i]) / count;
  }
}

TrainProgress learn_step(Learner& learner, const LearningContext& context, double entropy_weight) {
  const TrainConfig& config = learner.config;
  const LossWeights weights{.entropy = entropy_weight,
                            .elite = config.elite_weight,
                            .entropy_floor = context.entropy_floor};
  TrainProgress progress;
  const auto chosen = cases_of_step(config, context.cases.size(), learner.step);
  context.cases.keep(chosen);
  begin_cases(learner, context, chosen);
  learner.optimizer.zero_grad();
  const double share = 1.0 / static_cast<double>(chosen.size());
  const auto rank = static_cast<std::size_t>(context.team.rank());
  const std::vector<std::optional<Scored>> known = bests(learner, chosen);
  // Makes the passes, with the weights as they are now.
  const PolicyNetwork network =
      context.copy != nullptr ? context.copy->with_weights_of(learner.network) : learner.network;
  for (std::size_t first = 0; first < chosen.size();
       first += static_cast<std::size_t>(context.team.size())) {
    std::vector<Turn> turns = turns_from(first, chosen, known, context.team);
    Turn* own = rank < turns.size() ? &turns[rank] : nullptr;
    Said said;
    if (own != nullptr) said = say(network, context.cases[own->index].features);
    draw_and_judge(learner, context, said, own, turns);
    std::vector<CaseLossInput> inputs;
    for (Turn& turn : turns) inputs.push_back(note_turn(learner, context, turn, share, progress));
    std::optional<CaseLoss> loss;
    if (own != nullptr) {
      inputs[rank].said = said;
      loss = case_loss(inputs[rank], weights);
    }
    add_gradients(learner, context, turns, loss ? &*loss : nullptr, network, share, progress);
  }
  torch::nn::utils::clip_grad_norm_(learner.network->parameters(), kGradientClip);
  learner.optimizer.step();
  progress.step = ++learner.step;
  progress.steps = config.steps;
  progress.evaluations = learner.evaluations;
  logger().debug("learning step {}, {} evaluations: reward {:.6g}, entropy {:.4g}, loss {:.6g}",
                 progress.step, progress.evaluations, progress.mean_reward, progress.entropy,
                 progress.loss);
  return progress;
}

}  // namespace heterog::learn

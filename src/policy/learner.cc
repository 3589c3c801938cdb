// Everything that learning changes, and one step of it; pretraining and fine-tuning share it.
#include "policy/learner.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "policy/shared_work.h"

namespace heterog::policy {
namespace {

// Their streams of random numbers, beyond any sample's.
constexpr std::uint64_t kEdits = 1u << 20;
constexpr std::uint64_t kSchedules = 1u << 21;
// One edit in so many is of the schedule: it has some ten neighbours, stretches have hundreds.
constexpr std::uint64_t kScheduleEdits = 8;

double mean_step_seconds(std::span<const planner::Evaluation> evaluations) {
  double sum = 0;
  for (const planner::Evaluation& e : evaluations) sum += to_seconds(e.step);
  return sum / static_cast<double>(evaluations.size());
}

double feasible_seconds(const planner::Evaluation& e) {
  return e.feasible ? to_seconds(e.step) : 0.0;
}

void add_elites(const CaseState& state, const TrainConfig& config, CaseLossInput& input) {
  for (const Scored& scored : state.best) {
    if (static_cast<std::int64_t>(input.elites.size()) < config.elite_count) {
      input.elites.push_back(scored.choice.actions);
      input.elite_schedules.push_back({.schedule = scored.choice.schedule});
    }
  }
}

// Notes what has been simulated of a case before its first step: the baseline to report, the first
// strategies to imitate, and what the case's lesson is worth in actions. `first`: the plain
// strategies, then the lesson's, if it has one.
void begin_case(Learner& learner, std::size_t index, std::span<const Choice> first,
                std::span<const planner::Evaluation> evaluations) {
  CaseState& state = learner.states[index];
  const std::size_t plain = first.size() - (state.lesson ? 1 : 0);
  state.baseline = *std::min_element(
      evaluations.begin(), evaluations.begin() + space::kReplicated.size(), planner::better);
  const std::size_t kept = elites_kept(learner.config);
  if (learner.config.imitate_plain) {
    keep_best(state.best, first.first(plain), evaluations.first(plain), kept);
  }
  keep_best(state.best, first.subspan(plain), evaluations.subspan(plain), kept);
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
    std::vector<Actions> first = plain_strategies(c);
    if (state.lesson) first.push_back(state.lesson->actions);
    asked.push_back({&c, with_schedule(std::move(first), c.schedules.usual)});
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
  for (const std::size_t index : chosen) {
    const std::vector<Scored>& best = learner.states[index].best;
    known.push_back(best.empty() ? std::nullopt : std::optional(best[0]));
  }
  return known;
}

// One position of a step: a case, and what has been drawn for it.
struct Turn {
  std::size_t position = 0;
  std::size_t index = 0;  // of the case
  std::optional<Scored> edited;
  Draws draws;  // on the rank that drew them alone
  std::vector<Choice> drawn;
  std::vector<planner::Evaluation> evaluations;  // of these
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
std::int64_t edits_of(const TrainConfig& config, const Turn& turn) {
  if (!turn.edited) return 0;
  if (config.draws == "edits") return config.samples;
  return config.draws == "mixed" ? config.samples / 2 : 0;
}

// Super-units of a step, coarse to fine, of no more than `groups` groups.
std::size_t super_units(std::int64_t step, std::size_t groups) {
  constexpr std::size_t kFirst = 32;
  constexpr std::int64_t kStepsOfEach = 30;
  std::size_t count = kFirst;
  for (std::int64_t i = kStepsOfEach; i <= step && count < groups; i += kStepsOfEach) count *= 2;
  return std::min(count, groups);
}

// Actions of a turn's case by what the network says, and by the best so far.
Draws draw_actions(const TrainConfig& config, std::int64_t step,
                   const torch::Tensor& log_probabilities, const Turn& turn, const Rng& rng) {
  if (config.draws == "groups") {
    return {.actions = sample_actions(log_probabilities, config.samples, rng)};
  }
  if (config.draws == "latent") {
    return {.actions = sample_by_latent(log_probabilities, config.samples, rng)};
  }
  if (config.draws == "coarse") {
    const auto groups = static_cast<std::size_t>(log_probabilities.size(0));
    return draw_units(log_probabilities, config.samples, super_units(step, groups), rng);
  }
  const std::int64_t edits = edits_of(config, turn);
  Draws draws = draw_runs(log_probabilities, config.samples - edits, rng);
  if (edits > 0) {
    append(draws,
           draw_edits(log_probabilities, turn.edited->choice.actions, edits, rng.split(kEdits)));
  }
  return draws;
}

// Adds schedules, by what the network says. Edits have that of the best so far, some another option
// for one of its decisions and no stretch in turn: what such a strategy gains is owed to that
// alone.
void add_schedules(const TrainConfig& config, const torch::Tensor& logits, const Turn& turn,
                   const Rng& rng, Draws& draws) {
  const std::int64_t edits = edits_of(config, turn);
  draws.schedules = draw_schedules(logits, config.samples - edits, rng);
  for (std::size_t s = draws.schedules.size(); s < draws.actions.size(); ++s) {
    const Choice& edited = turn.edited->choice;
    Rng own = rng.split(s);
    ScheduleDraw draw{.schedule = edited.schedule, .end = 0};
    if (own.below(kScheduleEdits) == 0) draw = redraw(logits, edited.schedule, own);
    if (draw.end > 0) {
      draws.actions[s] = edited.actions;
      draws.stretches[s].clear();
    }
    draws.schedules.push_back(draw);
  }
}

std::vector<Choice> choices_of(const Draws& draws, const Schedule& usual) {
  std::vector<Choice> choices = with_schedule(draws.actions, usual);
  for (std::size_t s = 0; s < draws.schedules.size(); ++s) {
    choices[s].schedule = draws.schedules[s].schedule;
  }
  return choices;
}

// What each strategy of a turn is worth, `average` with them in it; of edits, beside what was
// edited.
std::vector<double> worth(const TrainConfig& config, const Turn& turn,
                          std::span<const double> rewards, const RewardAverage& average) {
  const auto edits = static_cast<std::size_t>(edits_of(config, turn));
  const std::span<const double> drawn = rewards.first(rewards.size() - edits);
  std::vector<double> all = config.baseline == "others" && drawn.size() > 1
                                ? advantages_over_others(drawn, average, config)
                                : advantages(drawn, average, config);
  if (edits > 0) {
    const auto of_edits =
        advantages_over(turn.edited->evaluation.reward, rewards.last(edits), average, config);
    all.insert(all.end(), of_edits.begin(), of_edits.end());
  }
  return all;
}

// Samples of all turns, drawn by their owners, and what they are worth. `said`: of `own`, the turn
// of this rank, which may be none.
void draw_and_judge(const Learner& learner, const LearningContext& context, const Said& said,
                    Turn* own, std::span<Turn> turns) {
  const std::int64_t samples = learner.config.samples;
  if (samples == 0) return;
  std::vector<std::vector<Choice>> drawn(turns.size());
  std::vector<std::size_t> groups;
  for (const Turn& turn : turns) {
    groups.push_back(context.cases[turn.index].problem->grouping.count());
  }
  if (own != nullptr) {
    const Rng rng = random_stream(learner.config, RandomStream::kSampling)
                        .split(static_cast<std::uint64_t>(learner.step))
                        .split(own->position);
    own->draws = draw_actions(learner.config, learner.step, said.log_probabilities, *own, rng);
    if (said.schedule.defined()) {
      add_schedules(learner.config, said.schedule, *own, rng.split(kSchedules), own->draws);
    }
    drawn[static_cast<std::size_t>(own - turns.data())] =
        choices_of(own->draws, context.cases[own->index].schedules.usual);
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
CaseLossInput note_turn(Learner& learner, const Case& c, Turn& turn, double share,
                        TrainProgress& progress) {
  const TrainConfig& config = learner.config;
  CaseState& state = learner.states[turn.index];
  CaseLossInput input{};
  CaseProgress seen{.name = c.name};
  if (config.samples > 0) {
    keep_best(state.best, turn.drawn, turn.evaluations, elites_kept(config));
    std::vector<double> rewards;
    for (const planner::Evaluation& e : turn.evaluations) rewards.push_back(e.reward);
    state.average = updated(state.average, rewards, config.baseline_decay);
    input.advantages = worth(config, turn, rewards, state.average);
    input.draws = std::move(turn.draws);
    progress.mean_reward +=
        share * std::accumulate(rewards.begin(), rewards.end(), 0.0) / rewards.size();
    seen.mean_step_seconds = mean_step_seconds(turn.evaluations);
  }
  if (learner.step >= config.elite_from) add_elites(state, config, input);
  if (state.lesson) {
    input.lesson = state.lesson->actions;
    input.lesson_weights = c.group_weights;
    seen.taught_step_seconds = state.lesson->step_seconds;
  }
  if (!state.best.empty()) {
    seen.best_step_seconds = feasible_seconds(state.best[0].evaluation);
  }
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

// Positions of a step that ranks compute beside each other, one each.
struct Round {
  std::vector<std::size_t> cases;
  IncumbentFeatures incumbent;       // that the own position's passes read
  std::optional<CaseLossInput> own;  // of this rank, if it has a position
};

// Adds the gradients of a round's positions to those of the parameters, and their parts of loss and
// entropy to the step's, one position after another: the bits do not depend on where rounds end.
void add_gradients(Learner& learner, const LearningContext& context, const Round& round,
                   const PolicyNetwork& network, double share, double entropy_weight,
                   TrainProgress& progress) {
  const TrainConfig& config = learner.config;
  const auto parameters = learner.network->parameters();
  std::optional<PositionLoss> own;
  if (round.own) {
    const CaseLoss loss =
        case_loss(*round.own, entropy_weight,
                  {.elites = config.elite_weight, .lesson = config.teacher_weight},
                  {.floor = config.entropy_floor, .weight = config.entropy_floor_weight});
    own = PositionLoss{.loss = loss.loss.item<double>(),
                       .entropy = loss.entropy.item<double>(),
                       .gradient = gradient_of(loss.loss * share, network->parameters())};
  }
  const auto losses =
      gather_losses(context.team, round.cases.size(), own ? &*own : nullptr, parameters);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    expect_finite(losses[i], learner.step + 1, context.cases[round.cases[i]]);
    add_gradient(losses[i].gradient, parameters);
    progress.loss += share * losses[i].loss;
    progress.entropy += share * losses[i].entropy;
  }
}

void follow_gradients(Learner& learner) {
  torch::nn::utils::clip_grad_norm_(learner.network->parameters(), learner.config.gradient_clip);
  learner.optimizer.step();
}

// That makes the next pass, with the learner's weights as they are now.
PolicyNetwork passing(const Learner& learner, const LearningContext& context) {
  return context.copy != nullptr ? context.copy->with_weights_of(learner.network) : learner.network;
}

// Of the pass that it is made from, but not of what the network said.
void let_go(CaseLossInput& input) {
  input.log_probabilities = input.log_probabilities.detach();
  if (input.schedule.defined()) input.schedule = input.schedule.detach();
}

// For a further pass over the same draws, by what the network says now.
void look_again(const Learner& learner, const PolicyNetwork& network, const Case& c,
                const IncumbentFeatures& incumbent, CaseLossInput& input) {
  if (!input.before.defined()) {
    input.before = log_likelihood(input).detach();
    input.clip = learner.config.proximal_clip;
  }
  const Said said = say(network, c, incumbent);
  input.log_probabilities = said.log_probabilities;
  input.schedule = said.schedule;
}

// What the passes of a turn read of the best so far. Not of the lesson itself, if that is the best:
// the network would only learn to copy it.
IncumbentFeatures incumbent_of(Learner& learner, const LearningContext& context, const Turn& turn) {
  if (!learner.config.incumbent_features || !turn.edited) return {};
  const CaseState& state = learner.states[turn.index];
  if (state.lesson && state.lesson->actions == turn.edited->choice.actions) return {};
  learner.incumbents.resize(learner.states.size());
  return see(learner.incumbents[turn.index], context.cases[turn.index], turn.edited->choice,
             context.profile);
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
  const auto chosen = cases_of_step(config, context.cases.size(), learner.step);
  begin_cases(learner, context, chosen);
  learner.optimizer.zero_grad();
  const double share = 1.0 / static_cast<double>(chosen.size());
  const auto rank = static_cast<std::size_t>(context.team.rank());
  const std::vector<std::optional<Scored>> known = bests(learner, chosen);
  PolicyNetwork network = passing(learner, context);
  std::vector<Round> rounds;
  for (std::size_t first = 0; first < chosen.size();
       first += static_cast<std::size_t>(context.team.size())) {
    std::vector<Turn> turns = turns_from(first, chosen, known, context.team);
    Turn* own = rank < turns.size() ? &turns[rank] : nullptr;
    Round& round = rounds.emplace_back();
    Said said;
    if (own != nullptr) {
      round.incumbent = incumbent_of(learner, context, *own);
      said = say(network, context.cases[own->index], round.incumbent);
    }
    draw_and_judge(learner, context, said, own, turns);
    std::vector<CaseLossInput> inputs;
    for (Turn& turn : turns) {
      inputs.push_back(note_turn(learner, context.cases[turn.index], turn, share, progress));
      round.cases.push_back(turn.index);
    }
    if (own != nullptr) {
      round.own = std::move(inputs[rank]);
      round.own->log_probabilities = said.log_probabilities;
      round.own->schedule = said.schedule;
    }
    add_gradients(learner, context, round, network, share, entropy_weight, progress);
    if (round.own) let_go(*round.own);
  }
  follow_gradients(learner);
  TrainProgress unsaid;  // the log is of the first pass
  for (std::int64_t pass = 1; pass < config.proximal_passes && config.samples > 0; ++pass) {
    learner.optimizer.zero_grad();
    network = passing(learner, context);
    for (Round& round : rounds) {
      if (round.own) {
        look_again(learner, network, context.cases[round.cases[rank]], round.incumbent, *round.own);
      }
      add_gradients(learner, context, round, network, share, entropy_weight, unsaid);
    }
    follow_gradients(learner);
  }
  progress.step = ++learner.step;
  progress.steps = config.steps;
  progress.evaluations = learner.evaluations;
  logger().debug("learning step {}: reward {:.6g}, entropy {:.4g}, loss {:.6g}", progress.step,
                 progress.mean_reward, progress.entropy, progress.loss);
  return progress;
}

}  // namespace heterog::policy

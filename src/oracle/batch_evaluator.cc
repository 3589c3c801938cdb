// Remembers strategies by a 128-bit hash; the oracle is asked about the new ones of a batch.
#include "oracle/batch_evaluator.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <unordered_set>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"

namespace heterog::oracle {

namespace {

// All that a strategy says, with the length of whatever has no fixed one before it.
using Words = std::vector<std::uint64_t>;
constexpr std::uint64_t kAsBefore = std::uint64_t{1} << 56;

void add_decisions(Words& words, const decide::Strategy& strategy) {
  words.push_back(strategy.unit_of_op.size());
  for (UnitId unit : strategy.unit_of_op) words.push_back(unit.value());
  words.push_back(strategy.units.size());
  const decide::UnitDecision* before = nullptr;
  for (const decide::UnitDecision& decision : strategy.units) {
    // Neighbours often decide alike. No list is as long as that.
    const bool alike = before && before->replicas == decision.replicas;
    before = &decision;
    words.push_back((alike ? kAsBefore : decision.replicas.size()) * 16 +
                    static_cast<std::uint64_t>(decision.recompute) * 8 +
                    static_cast<std::uint64_t>(decision.in_turn) * 4 +
                    static_cast<std::uint64_t>(decision.sync));
    if (alike) continue;
    for (const decide::Replica& replica : decision.replicas) {
      words.push_back(replica.device.value());
      words.push_back(std::bit_cast<std::uint64_t>(replica.weight));
    }
  }
}

void add_options(Words& words, const decide::Strategy& strategy) {
  words.push_back(strategy.sync.size());
  for (const decide::ParameterSync& sync : strategy.sync) {
    words.push_back(sync.parameter.value());
    words.push_back(static_cast<std::uint64_t>(sync.group) << 8 |
                    static_cast<std::uint64_t>(sync.method));
    words.push_back(sync.server.value());
    words.push_back(sync.servers.size());
    for (const decide::Replica& server : sync.servers) {
      words.push_back(server.device.value());
      words.push_back(std::bit_cast<std::uint64_t>(server.weight));
    }
  }
  words.push_back(strategy.row_weights.size());
  for (double weight : strategy.row_weights) words.push_back(std::bit_cast<std::uint64_t>(weight));
  words.push_back(strategy.priorities.size());
  for (const decide::OpPriority& one : strategy.priorities) {
    words.push_back(one.op.value());
    words.push_back(one.instance);
    words.push_back(static_cast<std::uint64_t>(one.priority));
  }
  words.push_back(static_cast<std::uint64_t>(strategy.micro_batches));
  words.push_back(static_cast<std::uint64_t>(strategy.pattern) * 2 +
                  static_cast<std::uint64_t>(strategy.strict));
  words.push_back(strategy.pipeline_of.size());
  for (std::uint32_t pipeline : strategy.pipeline_of) words.push_back(pipeline);
  words.push_back(static_cast<std::uint64_t>(strategy.order_rounds) * 8 +
                  static_cast<std::uint64_t>(strategy.order));
  words.push_back(static_cast<std::uint64_t>(strategy.bucket_bytes));
}

// Of a candidate that is no strategy of the problem: worse than any that is.
constexpr std::int64_t kRefused = std::numeric_limits<std::int64_t>::max() / 4;
Measured refused_candidate(const cost::Problem& problem, Nanoseconds step = kRefused) {
  const Evaluation evaluation{
      .step = step, .missing_bytes = kRefused, .reward = reward(step, false)};
  return {evaluation, IdVector<DeviceId, Bytes>(problem.cluster->place_count(), 0), {}};
}

// So that how fast a search gets somewhere can be read off its log.
void log_best(std::span<const Measured> made, std::int64_t evaluations) {
  const Measured& best = *std::ranges::min_element(made, better, &Measured::evaluation);
  if (!best.evaluation.feasible) return;
  logger().debug("{} evaluations: {:.9f} s is the best of {}", evaluations,
                 to_seconds(best.evaluation.step), made.size());
}

}  // namespace

BatchEvaluator::Key BatchEvaluator::key_of(const decide::Strategy& strategy) {
  Words words;
  add_decisions(words, strategy);
  add_options(words, strategy);
  return hash_words(words);
}

std::int64_t BatchEvaluator::evaluations_left() const {
  if (!budget_.evaluations) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, *budget_.evaluations - evaluations_);
}

double BatchEvaluator::used() const {
  double used = budget_.time_used ? budget_.time_used() : 0;
  if (budget_.tasks) {
    const auto tasks = static_cast<double>(tasks_ - tasks_before_);
    used = std::max(used, tasks / static_cast<double>(*budget_.tasks));
  }
  if (!budget_.evaluations) return used;
  if (*budget_.evaluations <= evaluations_) return std::max(used, 1.0);
  return std::max(used,
                  static_cast<double>(evaluations_) / static_cast<double>(*budget_.evaluations));
}

Nanoseconds BatchEvaluator::longest() const {
  if (!give_up_beyond_ || !best_step_) return std::numeric_limits<Nanoseconds>::max();
  return static_cast<Nanoseconds>(*give_up_beyond_ * static_cast<double>(*best_step_));
}

void BatchEvaluator::note(const Measured& made) {
  tasks_ += made.tasks;
  given_up_ += made.given_up ? 1 : 0;
  if (!made.evaluation.feasible) return;
  best_step_ = std::min(best_step_.value_or(made.evaluation.step), made.evaluation.step);
}

// One by one once any of them is refused.
std::vector<Measured> BatchEvaluator::measure(std::span<const decide::Strategy> fresh) {
  try {
    return oracle_.measure_within(fresh, longest());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
  }
  std::vector<Measured> made;
  std::optional<Error> first;
  std::int64_t refused = 0;
  for (const decide::Strategy& one : fresh) {
    try {
      made.push_back(oracle_.measure({&one, 1}).front());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      if (!first) first = error;
      ++refused;
      made.push_back(refused_candidate(problem()));
    }
  }
  const bool all = refused == static_cast<std::int64_t>(fresh.size()) && refused_ == evaluations_;
  if (first && all) throw *first;
  if (first && refused_ == 0) logger().warn("a candidate is dropped: {}", first->what());
  refused_ += refused;
  return made;
}

Measured BatchEvaluator::evaluate(const decide::Strategy& strategy) {
  Measured measured = evaluate({&strategy, 1}).front();
  const bool refused = measured.evaluation.missing_bytes == kRefused && !measured.given_up;
  if (refused) oracle_.measure({&strategy, 1});  // says why
  return measured;
}

std::vector<Measured> BatchEvaluator::evaluate(std::span<const decide::Strategy> strategies) {
  std::vector<Key> keys;
  std::vector<decide::Strategy> fresh;  // the first of each strategy not seen before
  std::vector<Key> fresh_keys;
  std::unordered_set<Key, KeyHash> begun;
  for (const decide::Strategy& strategy : strategies) {
    const Key key = keys.emplace_back(key_of(strategy));
    if (seen_.contains(key) || !begun.insert(key).second) continue;
    fresh.push_back(strategy);
    fresh_keys.push_back(key);
  }
  if (!fresh.empty()) {
    std::vector<Measured> made = measure(fresh);
    ENSURE(made.size() == fresh.size());
    log_best(made, evaluations_ + static_cast<std::int64_t>(fresh.size()));
    // Only now that all of them have come out: one that throws leaves nothing behind.
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      note(made[i]);
      if (made[i].given_up) {
        made[i] = refused_candidate(problem(), made[i].evaluation.step);
        made[i].given_up = true;
      }
      seen_.emplace(fresh_keys[i], std::move(made[i]));
    }
    evaluations_ += static_cast<std::int64_t>(fresh.size());
  }

  std::vector<Measured> results;
  results.reserve(strategies.size());
  for (const Key& key : keys) results.push_back(seen_.at(key));
  return results;
}

}  // namespace heterog::oracle

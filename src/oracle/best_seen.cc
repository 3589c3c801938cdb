// Looks at every answer on its way back.
#include "oracle/best_seen.h"

namespace heterog::oracle {

void BestSeen::look_at(const decide::Strategy& strategy, const Evaluation& evaluation) {
  const std::lock_guard lock(mutex_);
  ++evaluations_;
  if (!best_ || better(evaluation, best_->evaluation)) best_ = Seen{strategy, evaluation};
}

std::vector<Measured> BestSeen::look_at_all(std::span<const decide::Strategy> strategies,
                                            std::vector<Measured> measured) {
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (!measured[i].given_up) look_at(strategies[i], measured[i].evaluation);
  }
  return measured;
}

std::vector<Measured> BestSeen::measure(std::span<const decide::Strategy> strategies) {
  return look_at_all(strategies, asked_.measure(strategies));
}

std::vector<Measured> BestSeen::measure_within(std::span<const decide::Strategy> strategies,
                                               Nanoseconds longest) {
  return look_at_all(strategies, asked_.measure_within(strategies, longest));
}

std::vector<Measured> BestSeen::measure_rounds(const decide::Strategy& strategy) {
  std::vector<Measured> measured = asked_.measure_rounds(strategy);
  decide::Strategy in_round = strategy;
  for (std::size_t round = 0; round < measured.size(); ++round) {
    in_round.order_rounds = static_cast<int>(round);
    look_at(in_round, measured[round].evaluation);
  }
  return measured;
}

}  // namespace heterog::oracle

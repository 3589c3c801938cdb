// Looks at every answer on its way back.
#include "oracle/best_seen.h"

namespace heterog::oracle {

void BestSeen::look_at(const compiler::Strategy& strategy, const Evaluation& evaluation) {
  const std::lock_guard lock(mutex_);
  ++evaluations_;
  if (!best_ || better(evaluation, best_->evaluation)) best_ = Seen{strategy, evaluation};
}

std::vector<Measured> BestSeen::measure(std::span<const compiler::Strategy> strategies) {
  std::vector<Measured> measured = asked_.measure(strategies);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    look_at(strategies[i], measured[i].evaluation);
  }
  return measured;
}

std::optional<BetterOrder> BestSeen::improve_order(const compiler::Strategy& strategy, int rounds) {
  std::optional<BetterOrder> found = asked_.improve_order(strategy, rounds);
  if (found) look_at(found->strategy, found->measured.evaluation);
  return found;
}

}  // namespace heterog::oracle

// Asks the signals, or the caller.
#include "cli/stopping.h"

#include <fmt/format.h>

#include <utility>

#include "cli/progress.h"
#include "launch/children.h"

namespace heterog::cli {

Stopping::Stopping(const Caller& caller) : caller_(caller) {
  if (caller.is_program) signals_.emplace(NotedSignals::Second::kEnds);
}

bool Stopping::asked() const {
  return (signals_ && signals_->noted()) || (caller_.stopped && caller_.stopped());
}

oracle::Budget Stopping::until_asked(oracle::Budget budget) const {
  budget.time_used = [this, used = std::move(budget.time_used)] {
    if (asked()) return 1.0;
    return used ? used() : 0.0;
  };
  return budget;
}

std::string Stopping::text(double seconds) const {
  const auto signal = signals_ ? signals_->noted() : std::nullopt;
  return fmt::format("stopped by {} after {}", signal ? launch::signal_text(*signal) : "the caller",
                     duration_text(seconds));
}

}  // namespace heterog::cli

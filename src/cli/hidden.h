// --hidden: plans by what is believed, steps by costs that planners do not see.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "cli/options.h"
#include "cost/hidden.h"
#include "oracle/simulated_oracle.h"
#include "search/planner.h"

namespace heterog::cli {

// As it was written, and what it says.
struct HiddenOption {
  std::string text;
  std::optional<cost::HiddenCosts> costs;
};
void add_hidden(CLI::App& verb, HiddenOption& option);

// A problem as it is believed, and as it is.
class HiddenRun {
 public:
  // Nothing is hidden without costs: problem() is the believed one, and trials() null.
  HiddenRun(const HiddenOption& option, const cost::Problem& believed, ThreadPool& threads,
            const compiler::CompileOptions& compiling, const std::function<bool()>& stopped);

  const cost::Problem& problem() const { return hidden_ ? *hidden_ : believed_; }
  oracle::Oracle* trials() const { return oracle_.get(); }
  // What the strategy comes to; `believed` where nothing is hidden.
  oracle::Evaluation shown(const decide::Strategy& strategy, const oracle::Evaluation& believed);

 private:
  const cost::Problem& believed_;
  std::unique_ptr<const cost::Problem> hidden_;
  std::unique_ptr<oracle::SimulatedOracle> oracle_;
};

}  // namespace heterog::cli

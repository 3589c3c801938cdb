// Reads --hidden, and keeps both problems.
#include "cli/hidden.h"

namespace heterog::cli {
namespace {

constexpr NumberRange kSpreads = {0, 2};

cost::HiddenCosts parse_hidden(const std::string& text) {
  const std::size_t colon = text.find(':');
  cost::HiddenCosts costs;
  costs.seed = static_cast<std::uint64_t>(parse_integer("--hidden", text.substr(0, colon), kSeeds));
  if (colon != std::string::npos) {
    costs.spread = parse_number("--hidden: the spread", text.substr(colon + 1), kSpreads);
  }
  return costs;
}

}  // namespace

void add_hidden(CLI::App& verb, HiddenOption& option) {
  verb.add_option_function<std::string>(
          "--hidden",
          [&option](const std::string& text) {
            option.costs = parse_hidden(text);
            option.text = text;
          },
          fmt::format("Multiply times of operators and bandwidths of links by random factors that "
                      "planners do not see, of this seed and, as SEED:SPREAD, this standard "
                      "deviation of logarithms (default {:g}; {:g} to {:g}); steps are shown under "
                      "them, and planners that measure in their papers try plans under them",
                      cost::HiddenCosts{}.spread, kSpreads.least, kSpreads.most))
      ->type_name("SEED");
}

HiddenRun::HiddenRun(const HiddenOption& option, const cost::Problem& believed, ThreadPool& threads,
                     const compiler::CompileOptions& compiling,
                     const std::function<bool()>& stopped)
    : believed_(believed) {
  if (!option.costs) return;
  hidden_ = cost::hidden_problem(believed, *option.costs);
  oracle_ = std::make_unique<oracle::SimulatedOracle>(*hidden_, threads, compiling, stopped);
}

oracle::Evaluation HiddenRun::shown(const decide::Strategy& strategy,
                                    const oracle::Evaluation& believed) {
  return oracle_ ? oracle_->measure({&strategy, 1}).front().evaluation : believed;
}

}  // namespace heterog::cli

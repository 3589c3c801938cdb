// The portfolio as a planner, and what its users may choose.
#include <array>
#include <memory>
#include <utility>

#include "planner/portfolio.h"

namespace heterog::planner {
namespace {

struct PortfolioSettings : PortfolioOptions {
  std::string scorer_file;  // of moves; empty: none
};

constexpr std::array<Field<PortfolioSettings>, 5> kFields = {
    {{"patience", "local search is stuck after so many moves in a row that did not help; 0: never",
      IntegerField<PortfolioSettings>{&PortfolioSettings::patience, {0, 1'000'000'000}}},
     {"order_rounds", "rounds in which the order of the plan found is improved in the end; 0: none",
      IntegerField<PortfolioSettings>{&PortfolioSettings::order_rounds, {0, 1'000}}},
     {"pipelines", "pipelines that are tried, with a budget eight times as many; 0: none",
      IntegerField<PortfolioSettings>{&PortfolioSettings::pipelines, {0, 10'000}}},
     kDrawnField<PortfolioSettings>,
     {"scorer", "what chooses among moves, made by train --moves",
      FileField<PortfolioSettings>{&PortfolioSettings::scorer_file, "none"}}}};

class Portfolio final : public Planner {
 public:
  Portfolio(PortfolioSettings options, MoveScorerSource scorers)
      : options_(std::move(options)), scorers_(std::move(scorers)) {}
  PlannerResult plan(PlannerContext& context) const override {
    PortfolioOptions options = options_;
    const auto scorer = make_scorer(
        scorers_, {.drawn = options_.drawn, .scorer = options_.scorer_file}, context.problem());
    options.scorer = scorer.get();
    return best_plan(context, options);
  }

 private:
  PortfolioSettings options_;
  MoveScorerSource scorers_;
};

}  // namespace

PlannerEntry portfolio_entry(const MoveScorerSource& scorers) {
  return planner_entry<PortfolioSettings>(
      "portfolio", "the best of baselines, shares by memory, local search and pipelines", kFields,
      [scorers](const PortfolioSettings& options) {
        return std::make_unique<Portfolio>(options, scorers);
      });
}

}  // namespace heterog::planner

// The portfolio as a planner, and what its users may choose.
#include <array>
#include <memory>

#include "search/portfolio/portfolio.h"

namespace heterog::search {
namespace {

constexpr std::array<std::string_view, 15> kPartWords = {
    "nothing",   "estimates", "memory-fill", "other-orders", "settling",
    "widths",    "halving",   "sync-split",  "pipelines",    "moved-pipelines",
    "leave-out", "order",     "servers",     "placements",   "together"};

constexpr std::array<Field<PortfolioOptions>, 4> kFields = {
    {{"patience", "local search is stuck after so many moves in a row that did not help; 0: never",
      IntegerField<PortfolioOptions>{&PortfolioOptions::patience, {0, 1'000'000'000}}},
     {"order_rounds", "rounds in which the order of the plan found is improved in the end; 0: none",
      IntegerField<PortfolioOptions>{&PortfolioOptions::order_rounds, {0, 1'000}}},
     {"pipelines", "pipelines that are tried, with a budget eight times as many; 0: none",
      IntegerField<PortfolioOptions>{&PortfolioOptions::pipelines, {0, 10'000}}},
     {"without", "which part is left out, to measure what it is worth",
      choice<PortfolioOptions, &PortfolioOptions::without>(kPartWords)}}};

class Portfolio final : public Planner {
 public:
  explicit Portfolio(PortfolioOptions options) : options_(std::move(options)) {}
  PlannerResult plan(PlannerContext& context) const override {
    return best_plan(context, options_);
  }

 private:
  PortfolioOptions options_;
};

}  // namespace

PlannerEntry portfolio_entry() {
  return planner_entry<PortfolioOptions>(
      "portfolio", "the best of baselines, shares by memory, local search and pipelines", kFields,
      [](const PortfolioOptions& options) { return std::make_unique<Portfolio>(options); });
}

}  // namespace heterog::search

// What the stages of a portfolio share: the problem, the budget, and the best so far.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "search/answers/leave_out.h"
#include "search/engines/halving.h"
#include "search/portfolio/portfolio.h"
#include "space/group_summary.h"

namespace heterog::search::portfolio {

// Where plans are costly, what takes so many times as long as the best does not catch up, neither
// with other shares nor with servers that are dealt better.
inline constexpr double kTooFarBehind = 1.5;

struct Search {
  PlannerContext& context;
  const PortfolioOptions& options;
  BatchEvaluator evaluator;
  bool costly;                          // each plan takes long to simulate: stages try less
  bool few;                             // so long that there are hardly more plans than that
  bool limited;                         // there is a budget, of more than one shot or less
  space::GroupSummaries groups;         // of the problem
  PlannerResult result{};               // the best so far
  bool found = false;                   // whether there is one
  std::vector<Start> starts{};          // plain, the best first once they were climbed from
  std::vector<Start> pipelines{};       // those that were climbed from, by their best order
  std::optional<FewerDevices> fewer{};  // that may be as fast in a better order
  bool placed = false;                  // whether placements of single operators were tried
  std::optional<Start> placement{};     // the best of these, if it comes near the result
};

// Whether this part is not left out.
inline bool with(const Search& search, Part part) { return search.options.without != part; }

// Takes it for the result if it is better, or the first.
void consider(Search& search, const decide::Strategy& strategy, const Evaluation& evaluation,
              const std::string& name);

// Goes on with what a start has become, named as it was and `by`, if that is better.
void replace(Search& search, Start& start, Tried with, const char* by);
// Goes on with the best of these sizes of buckets, the first of which matter most, if that is
// better and gradients are all-reduced.
void choose_buckets(Search& search, Start& start, std::span<const Bytes> sizes);

// What each of them becomes by forward and backward schedules in turns, where that is better, in as
// many rounds as are wanted and affordable. Beside what the budget counts.
std::vector<std::optional<Tried>> better_orders(const Search& search,
                                                const std::vector<decide::Strategy>& strategies,
                                                std::int64_t rounds = std::int64_t{1} << 20);
// The name of who found it, and " + order".
std::string reordered(std::string name);

// That the budget will have simulated in the end, as far as it has got until now.
double plans_in_all(const Search& search);

}  // namespace heterog::search::portfolio

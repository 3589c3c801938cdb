// Where climbing may begin: what somebody else has found, what estimates say, what fills the
// memory.
#include <algorithm>
#include <array>
#include <span>

#include "search/moves/move.h"
#include "search/portfolio/stages.h"
#include "search/starts/estimated_layouts.h"
#include "search/starts/memory_fill.h"
#include "search/starts/starts.h"

namespace heterog::search::portfolio {
namespace {

using decide::Strategy;

// Starts that are climbed from, of each origin.
constexpr std::size_t kStarts = 3;
// That are tried in every order, with and without buckets.
constexpr std::size_t kScheduled = 3;

std::vector<Start> evaluate_starts(Search& search, const std::vector<Strategy>& strategies,
                                   const std::string& name) {
  std::vector<Start> tried;
  const std::vector<Measured> measured = search.evaluator.evaluate(strategies);
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    tried.push_back({{strategies[i], measured[i].evaluation}, name});
  }
  return tried;
}

// Those in micro-batches or on units of their own are climbed from with pipelines.
std::vector<Start> given(Search& search) {
  std::vector<Start> starts =
      evaluate_starts(search, search.options.given, search.options.given_by);
  const auto pipelines = std::ranges::stable_partition(starts, [](const Start& start) {
    return start.tried.strategy.micro_batches == 1 && start.tried.strategy.unit_of_op.empty();
  });
  for (Start& pipeline : pipelines) {
    consider(search, pipeline.tried.strategy, pipeline.tried.evaluation, pipeline.name);
    search.pipelines.push_back(std::move(pipeline));
  }
  starts.erase(pipelines.begin(), pipelines.end());
  return starts;
}

std::vector<Start> estimates(Search& search) {
  if (search.costly || !with(search, Part::kEstimates))
    return {};  // hundreds of devices: they have not won there yet
  return evaluate_starts(search, estimated_layouts(search.context.problem()), "estimate");
}

// Shares by speed and memory are cheap to try; blocks only where nothing fits yet.
std::vector<Start> fills(Search& search) {
  if (!with(search, Part::kMemoryFill)) return {};
  // What else fits may be far from what filling memory finds.
  const bool feasible = std::ranges::any_of(
      search.result.baselines,
      [](const BaselineResult& baseline) { return baseline.evaluation.feasible; });
  MemoryFillOptions options{.single_block = feasible};
  if (feasible) options.rounds = search.costly ? 1 : 2;
  std::vector<Start> tried;
  for (Tried& one : memory_fill(search.evaluator, options)) {
    tried.push_back({std::move(one), "memory-fill"});
  }
  return tried;
}

// The best few, wherever they are from, in every other order, with and without buckets.
void add_schedules(Search& search, std::span<std::vector<Start>> origins) {
  std::vector<Start> best;
  for (const std::vector<Start>& origin : origins) {
    best.insert(best.end(), origin.begin(), origin.end());
  }
  best_first(best);
  if (best.size() > kScheduled) best.resize(kScheduled);
  for (const Start& start : best) {
    if (search.evaluator.spent()) return;
    const auto origin = std::ranges::find_if(origins, [&](const std::vector<Start>& one) {
      return !one.empty() && one.front().name == start.name;
    });
    for (Start& other :
         evaluate_starts(search, in_other_schedules(start.tried.strategy), start.name)) {
      origin->push_back(std::move(other));
    }
  }
}

}  // namespace

// The best few of one origin that differ in more than order and buckets, and those that would be
// faster if they fitted.
void add_starts(Search& search, std::vector<Start> tried) {
  best_first(tried);
  std::vector<IdVector<UnitId, decide::UnitDecision>> taken;
  std::size_t fitting = 0, missing = 0;
  for (Start& start : tried) {
    consider(search, start.tried.strategy, start.tried.evaluation, start.name);
    Strategy from = movable(start.tried.strategy);
    const Evaluation& best = search.result.evaluation;
    const bool fits = start.tried.evaluation.feasible;
    const bool worth = fits || start.tried.evaluation.step < best.step || !best.feasible;
    std::size_t& count = fits ? fitting : missing;
    if (!worth || count == kStarts || std::ranges::find(taken, from.units) != taken.end()) continue;
    ++count;
    taken.push_back(from.units);
    search.starts.push_back(std::move(start));
    search.starts.back().tried.strategy = std::move(from);
  }
}

void try_starts(Search& search) {
  std::array<std::vector<Start>, 3> origins = {given(search), estimates(search), fills(search)};
  if (!search.costly && with(search, Part::kOtherOrders)) add_schedules(search, origins);
  for (std::vector<Start>& origin : origins) add_starts(search, std::move(origin));
}

}  // namespace heterog::search::portfolio

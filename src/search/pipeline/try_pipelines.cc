// What `plan` simulates of pipelines, each step by what the one before has shown.
#include <algorithm>
#include <limits>
#include <utility>

#include "search/pipeline/folded.h"
#include "search/pipeline/pipelines.h"
#include "search/pipeline/trials.h"

namespace heterog::search {
namespace {

using decide::Pattern;

// What does not fit is shorter by so much where other turns are worth a try that may.
constexpr double kMuchShorter = 1.03;
// What the best estimates are simulated at, other numbers of micro-batches do not halve.
constexpr double kCatchUp = 2;
// An estimate has a stage wait for all of a micro-batch. Where steps of a sequence go on one by one
// a plan may take half of it. How much less is seen on a few cuts, each of a line and number of
// stages of its own.
constexpr double kTooHigh = 2;
constexpr std::size_t kProbes = 6;

// Where the layers of one parameter are apart, its gradient travels in every micro-batch. A few are
// looked at so, the others where these are nearly as short.
constexpr std::size_t kApartFirst = 2;
constexpr double kNearlyAsShort = 1.2;

// There and back: of each order of the devices so many, as long as they are no longer than the best
// by more than this.
constexpr std::size_t kFoldedOfAWay = 6;
constexpr double kFoldedGains = 1.1;

using One = TriedPipelines::One;

// The layers of one parameter in stages of their own: all cuts where the first of them are nearly
// as short so as together.
void try_apart(Trials& trials, const std::vector<const Cut*>& cuts, Staging how) {
  const std::size_t first = std::min(kApartFirst, cuts.size());
  const auto rest = cuts.begin() + static_cast<std::ptrdiff_t>(first);
  how.tied_together = false;
  const double apart = trials.simulate({cuts.begin(), rest}, how);
  if (apart <= kNearlyAsShort * trials.shortest()) trials.simulate({rest, cuts.end()}, how);
}

// Devices there and back: of each way the best by estimate, and more of the best of these.
void try_folded(Trials& trials, TriedPipelines& tried, const PipelineLimits& limits,
                const Staging& how) {
  const std::size_t lines = limits.by_parts ? 1 : limits.folded;
  const std::size_t of_a_way = limits.by_parts ? 1 : kFoldedOfAWay;
  std::vector<std::vector<const Cut*>> ways;
  for (const Cut* one : trials.fastest(lines)) {
    if (one->stages.size() < 2) continue;
    for (bool from_last : {false, true}) {
      std::vector<const Cut*>& way = ways.emplace_back();
      for (Cut& folded : folded_cuts(tried.pool, *one, from_last, kHopefulFold * one->seconds)) {
        if (way.size() < of_a_way) way.push_back(&tried.folded.emplace_back(std::move(folded)));
      }
      if (way.empty()) ways.pop_back();
    }
  }
  std::vector<const Cut*> firsts;
  for (const std::vector<const Cut*>& way : ways) firsts.push_back(way.front());
  const double before = trials.shortest();
  if (trials.simulate(firsts, how) > kFoldedGains * before) return;
  if (limits.every_order) {
    for (const std::vector<const Cut*>& way : ways)
      trials.simulate({way.begin() + 1, way.end()}, how);
    return;
  }
  const Cut* best = trials.best_of(firsts);
  const auto way = std::ranges::find(ways, best, [](const auto& one) { return one.front(); });
  trials.simulate({way->begin() + 1, way->end()}, how);
}

}  // namespace

void try_cuts(BatchEvaluator& evaluator, TriedPipelines& tried, const PipelineLimits& limits,
              const PipelineOptions& options) {
  const std::size_t lines = limits.count < kSimulatedCuts ? 1 : 2;  // looked at once more
  const std::size_t listed = std::max<std::size_t>(3, limits.count / 3);
  const CutPool& pool = tried.pool;
  const std::vector<bool>& ways = pool.strictness;
  Trials trials(evaluator, tried);
  std::vector<Copies> copies = {Copies::kWhereMade};
  if (shares_copies(evaluator.problem(), pool.once.chain)) copies.push_back(Copies::kWhereRead);
  const auto simulate = [&](const std::vector<const Cut*>& cuts, Staging how) {
    for (Copies one : copies) {
      how.copies = one;
      trials.simulate(cuts, how);
    }
  };
  const bool ties = limits.improved && ties_layers(evaluator.problem(), pool.once.chain);
  const Staging first =
      limits.improved
          ? Staging{.pattern = Pattern::kZeroBubble, .order_rounds = 1, .tied_together = ties}
          : Staging{.pattern = pattern_of(options), .strict = ways.front()};
  PipelineLimits trusted = limits;
  if (limits.seconds < kNoStep && !limits.by_parts) {
    PipelineLimits probes = limits;
    probes.count = std::min(kProbes, limits.count);
    probes.seconds *= kTooHigh;
    probes.alike = 1;
    simulate(pool.choose(probes), first);
    double too_high = 1;
    for (const One& one : tried.all) {
      too_high = std::max(too_high, one.cut->seconds / to_seconds(one.evaluation.step));
    }
    trusted.seconds *= std::min(too_high, kTooHigh);
  }
  const std::vector<const Cut*> promising = pool.choose(trusted);
  if (promising.empty()) return;
  simulate(trials.unknown(promising), first);
  const bool hopeless = trials.shortest() > kCatchUp * limits.seconds;
  if (hopeless || tried.all.empty()) return;
  // The best lines and numbers of stages in other numbers of micro-batches.
  const double at_most = std::min(limits.seconds, trials.shortest_that_fits());
  simulate(trials.alike(trials.fastest(lines), at_most, limits), first);
  if (limits.by_parts) {
    // As long as fewer are shorter.
    tried.in_fewer = pool.in_fewer(limits);
    Nanoseconds before = std::numeric_limits<Nanoseconds>::max();
    for (const Cut& cut : tried.in_fewer) {
      simulate({&cut}, first);
      const Nanoseconds step = tried.all.back().evaluation.step;
      if (tried.all.back().cut != &cut || step >= before) break;
      before = step;
    }
  }
  if (ties && !limits.by_parts) try_apart(trials, trials.best(listed), first);
  if (limits.improved) try_folded(trials, tried, limits, first);
  // What puts gradients off keeps all micro-batches; one forward and one backward pass in turns
  // keep fewer, and may fit where it does not.
  const double fits = trials.shortest_that_fits();
  const bool others_do_not = !limits.by_parts && kMuchShorter * trials.shortest() < fits;
  if (fits == kNoStep || others_do_not) {
    simulate(trials.shortest_steps(listed), {.pattern = pattern_of(options),
                                             .strict = ways.front(),
                                             .order_rounds = first.order_rounds,
                                             .tied_together = trials.tied_together()});
  }
  if (!limits.all_patterns && trials.shortest_that_fits() < kNoStep) return;
  const std::vector<const Cut*> best = trials.best(listed);
  const bool together = trials.tied_together();
  // Devices with two stages go with no strict turns.
  std::vector<const Cut*> in_line = best;
  std::erase_if(in_line, [&](const Cut* cut) {
    return std::ranges::any_of(tried.folded, [&](const Cut& one) { return &one == cut; });
  });
  for (bool strict : ways) {
    for (Pattern pattern : {pattern_of(options), Pattern::kListed, Pattern::kZeroBubble}) {
      const bool tried_first = pattern == first.pattern && strict == first.strict;
      if (tried_first || (pattern == Pattern::kZeroBubble && !limits.improved)) continue;
      simulate(strict ? in_line : best, {.pattern = pattern,
                                         .strict = strict,
                                         .order_rounds = first.order_rounds,
                                         .tied_together = together});
    }
  }
}

TriedPipelines try_pipelines(BatchEvaluator& evaluator, const PipelineLimits& limits,
                             const PipelineOptions& options) {
  TriedPipelines tried{promising_pool(evaluator.oracle(), options)};
  try_cuts(evaluator, tried, limits, options);
  return tried;
}

}  // namespace heterog::search

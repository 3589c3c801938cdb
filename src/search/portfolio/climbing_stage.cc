// The starts that promise most: settled, their sets of devices varied, climbed from, halved, varied
// again, and their synchronisation split.
#include <algorithm>
#include <array>

#include "decide/decisions.h"
#include "search/portfolio/stages.h"
#include "search/starts/settle.h"
#include "search/starts/sync_split.h"
#include "search/starts/widths.h"

namespace heterog::search::portfolio {
namespace {

// Part of the budget at which halving ends.
constexpr double kHalved = 0.3;
// Once shares are settled, a start whose step is so many times the best one's is far behind.
constexpr double kFarBehind = 1.3;
// In all rounds of halving.
constexpr double kPlansPerStart = 48;
// A plan that lacks a hundredth of all memory counts as so many hundredths slower.
constexpr double kMissing = 10;
// Rounds in which samples of a start are moved to devices that wait.
constexpr int kSettling = 4;
// Of the starts, the best after climbing, whose synchronisation is split.
constexpr std::size_t kSplit = 3;
// Of the starts, the best, whose sets of devices are varied.
constexpr std::size_t kVaried = 3;
// Of the best start, where plans are costly.
constexpr std::array kEnlargedBuckets = {decide::kLargestBucketBytes, Bytes{128} << 20,
                                         Bytes{96} << 20, Bytes{192} << 20};
// Part of the budget after which no other start is varied.
constexpr double kVariedUntil = 0.4;

// As many as the budget climbs from for a while: fast, or fast and short of little memory.
void choose_starts(Search& search) {
  const cluster::Cluster& cluster = *search.context.problem().cluster;
  Bytes memory = 0;
  for (DeviceId device : cluster.device_ids()) memory += cluster.device(device).memory_bytes;
  const auto promise = [&](const Start& start) {
    const Evaluation& evaluation = start.tried.evaluation;
    const double missing =
        static_cast<double>(evaluation.missing_bytes) / static_cast<double>(memory);
    return to_seconds(evaluation.step) * (1 + kMissing * missing);
  };
  std::ranges::stable_sort(search.starts, {}, promise);
  const double plans = plans_in_all(search) * kHalved;
  const auto most = static_cast<std::size_t>(std::max(2.0, plans / kPlansPerStart));
  keep_first(search.starts, most);
}

void settle_starts(Search& search) {
  for (Start& start : search.starts) {
    replace(search, start, settle(search.evaluator, search.groups, start.tried, kSettling),
            " + shares");
  }
}

// A few large all-reduces for the best start, where each plan takes long to simulate: climbing
// would get to that by chance only. How large depends on where the last one begins, which nothing
// hides.
void enlarge_buckets(Search& search) {
  if (!search.costly) return;
  best_first(search.starts);
  Start& start = search.starts.front();
  if (start.tried.strategy.bucket_bytes > 0) choose_buckets(search, start, kEnlargedBuckets);
}

// Where there are few plans to climb with, what takes so many times as long as the best does not
// catch up.
void keep_near(Search& search, double most) {
  if (!search.few || search.limited) return;
  best_first(search.starts);
  const Evaluation best = search.starts.front().tried.evaluation;
  if (!best.feasible) return;
  std::erase_if(search.starts, [&](const Start& start) {
    const Evaluation& one = start.tried.evaluation;
    return !one.feasible || to_seconds(one.step) > most * to_seconds(best.step);
  });
}

// Before climbing, as a start of another shape goes other ways, and after it.
void vary_starts(Search& search) {
  if (search.costly || !with(search, Part::kWidths)) return;
  best_first(search.starts);
  for (std::size_t i = 0; i < std::min(search.starts.size(), kVaried); ++i) {
    if (search.evaluator.used() >= kVariedUntil) break;
    Start& start = search.starts[i];
    replace(search, start, vary_widths(search.evaluator, search.groups, start.tried), " + widths");
  }
}

// Those that are gone on from. Before climbing it would lead astray: over slow networks moves get
// much further from what is not split.
void split_starts(Search& search) {
  if (!with(search, Part::kSyncSplit)) return best_first(search.starts);
  const std::size_t most = search.costly ? 1 : kSplit;
  for (std::size_t i = 0; i < std::min(search.starts.size(), most); ++i) {
    Start& start = search.starts[i];
    replace(search, start, split_syncs(search.evaluator, search.groups, start.tried, search.costly),
            " + split");
  }
  best_first(search.starts);
}

}  // namespace

void climb_starts(Search& search) {
  choose_starts(search);
  keep_near(search, kTooFarBehind);
  if (with(search, Part::kSettling)) settle_starts(search);
  enlarge_buckets(search);
  keep_near(search, kFarBehind);
  vary_starts(search);
  if (with(search, Part::kHalving)) {
    search.starts = halve(search.evaluator, std::move(search.starts), search.context.rng, kHalved,
                          search.few && !search.limited);
  }
  vary_starts(search);
  split_starts(search);
  for (const Start& start : search.starts) {
    consider(search, start.tried.strategy, start.tried.evaluation, start.name);
  }
}

}  // namespace heterog::search::portfolio

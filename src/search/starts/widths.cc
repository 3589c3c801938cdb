// Line searches over where the set of devices changes.
//
// A device behind a network needs the parameters of all that it computes, and may so cost more than
// it saves. The first layers of a convolutional network have most of the computation and few of the
// parameters: there it pays. Moves hardly find that: of a few groups, what the device computes does
// not make up for the way of their inputs.
#include "search/starts/widths.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "search/moves/move.h"
#include "search/moves/rebalance.h"
#include "search/starts/settle.h"
#include "space/cluster_summary.h"

namespace heterog::search {

namespace {

using DeviceSet = IdVector<DeviceId, bool>;

constexpr int kRounds = 4;
constexpr std::size_t kIdleSets = 8;
constexpr int kSettling = 4;
// Of the computation, where more devices take part in what comes before, or fewer in what follows.
constexpr std::array<double, 4> kWideUntil = {0.25, 0.5, 0.75, 1};
constexpr std::array<double, 3> kNarrowFrom = {0.5, 0.75, 0.875};
// Of the share with which all would compute for equally long: what a device gets has to travel
// first. Settling finds out how much more it can take.
constexpr double kCautious = 0.5;

// The number of groups, in order, that make up this part of the computation.
std::size_t groups_until(const space::GroupSummaries& groups, double part) {
  if (part >= 1) return groups.size();
  double total = 0;
  for (const space::GroupSummary& group : groups) total += group.seconds;
  double seconds = 0;
  std::size_t count = 0;
  for (const space::GroupSummary& group : groups) {
    if (seconds + group.seconds / 2 > total * part) break;
    seconds += group.seconds;
    ++count;
  }
  return count;
}

// Changes of one strategy.
class Widths {
 public:
  Widths(const cost::Problem& problem, const space::GroupSummaries& groups,
         const decide::Strategy& strategy)
      : problem_(problem),
        cluster_(*problem.cluster),
        groups_(groups),
        seconds_(problem),
        strategy_(strategy),
        used_(cluster_.device_count(), false) {
    for (const decide::UnitDecision& unit : strategy_.units) {
      for (const decide::Replica& replica : unit.replicas) used_[replica.device] = true;
    }
  }

  std::vector<decide::Strategy> all() const {
    std::vector<decide::Strategy> changed;
    for (const DeviceSet& set : idle_sets()) {
      for (const double part : kWideUntil) {
        changed.push_back(with_shares(0, groups_until(groups_, part),
                                      [&](const Replicas& before) { return wider(before, set); }));
      }
    }
    for (const DeviceSet& set : fastest_sets()) {
      for (const double part : kNarrowFrom) {
        changed.push_back(
            with_shares(groups_until(groups_, part), groups_.size(),
                        [&](const Replicas& before) { return narrower(before, set); }));
      }
    }
    return changed;
  }

 private:
  double rate(DeviceId device) const {
    return 1 / std::max(1e-12, seconds_(device, problem_.batch));
  }

  double rate_of(const DeviceSet& set) const {
    double rates = 0;
    for (DeviceId device : cluster_.device_ids()) {
      if (set[device]) rates += rate(device);
    }
    return rates;
  }

  // Of each type in each machine the first idle device, and all of them; the fastest sets.
  std::vector<DeviceSet> idle_sets() const {
    std::vector<DeviceSet> sets;
    for (DeviceId first : cluster_.device_ids()) {
      if (used_[first]) continue;
      DeviceSet one(cluster_.device_count(), false);
      one[first] = true;
      DeviceSet alike = one;
      bool again = false;
      for (DeviceId other : cluster_.device_ids()) {
        if (used_[other] || cluster_.device(other).type != cluster_.device(first).type ||
            cluster_.device(other).machine != cluster_.device(first).machine) {
          continue;
        }
        if (other < first) again = true;
        alike[other] = true;
      }
      if (again) continue;
      sets.push_back(one);
      if (alike != one) sets.push_back(alike);
    }
    std::ranges::stable_sort(sets, std::ranges::greater(),
                             [&](const DeviceSet& set) { return rate_of(set); });
    if (sets.size() > kIdleSets) sets.resize(kIdleSets);
    return sets;
  }

  // Of the devices in use those of the fastest machine and those of the fastest type, all together,
  // if there are others.
  std::vector<DeviceSet> fastest_sets() const {
    std::vector<DeviceSet> sets;
    const auto add = [&](auto&& kind) {
      DeviceSet fastest;
      double most = 0;
      for (DeviceId one : cluster_.device_ids()) {
        DeviceSet set(cluster_.device_count(), false);
        for (DeviceId other : cluster_.device_ids()) {
          set[other] = used_[other] && kind(other) == kind(one);
        }
        if (rate_of(set) <= most) continue;
        most = rate_of(set);
        fastest = std::move(set);
      }
      if (fastest != used_ && std::ranges::find(sets, fastest) == sets.end()) {
        sets.push_back(std::move(fastest));
      }
    };
    add([&](DeviceId device) { return cluster_.device(device).machine.value(); });
    add([&](DeviceId device) { return cluster_.device(device).type.value(); });
    return sets;
  }

  // Samples for `set` from those that have them, in proportion to what they have.
  Replicas wider(const Replicas& before, const DeviceSet& set) const {
    double weights = 0, others = 0;
    for (const decide::Replica& replica : before) {
      weights += replica.weight;
      others += rate(replica.device);
    }
    Replicas wide = before;
    for (decide::Replica& replica : wide) replica.weight *= others / weights;
    for (DeviceId device : cluster_.device_ids()) {
      if (set[device]) wide.push_back({device, kCautious * rate(device)});
    }
    std::ranges::sort(wide, {}, &decide::Replica::device);
    return in_samples(wide, problem_.batch);
  }

  // As it is if none of `set` takes part.
  Replicas narrower(const Replicas& before, const DeviceSet& set) const {
    Replicas narrow;
    for (const decide::Replica& replica : before) {
      if (set[replica.device]) narrow.push_back(replica);
    }
    return narrow.empty() ? before : in_samples(narrow, problem_.batch);
  }

  // With other replicas for the groups from `first` to before `end`.
  template <typename Change>
  decide::Strategy with_shares(std::size_t first, std::size_t end, Change&& change) const {
    decide::Strategy next = strategy_;
    for (std::size_t i = first; i < end; ++i) {
      Replicas& replicas = next.units[UnitId(i)].replicas;
      replicas = change(replicas);
    }
    return in_one_spelling(std::move(next));
  }

  const cost::Problem& problem_;
  const cluster::Cluster& cluster_;
  const space::GroupSummaries& groups_;
  space::ModelSeconds seconds_;
  const decide::Strategy& strategy_;
  DeviceSet used_;
};

}  // namespace

Tried vary_widths(BatchEvaluator& evaluator, const space::GroupSummaries& groups,
                  const Tried& start) {
  Tried best = start;
  for (int round = 0; round < kRounds && !evaluator.spent(); ++round) {
    std::vector<decide::Strategy> changed =
        Widths(evaluator.problem(), groups, best.strategy).all();
    if (std::ssize(changed) > evaluator.evaluations_left()) {
      changed.resize(static_cast<std::size_t>(evaluator.evaluations_left()));
    }
    const std::vector<Measured> measured = evaluator.evaluate(changed);
    Tried next = best;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      if (!better(measured[i].evaluation, next.evaluation)) continue;
      next = {std::move(changed[i]), measured[i].evaluation};
    }
    if (!better(next.evaluation, best.evaluation)) break;
    best = settle(evaluator, groups, next, kSettling);
  }
  return best;
}

}  // namespace heterog::search

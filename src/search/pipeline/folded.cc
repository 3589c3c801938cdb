// The least time in which all layers find a place is found by bisection.
#include "search/pipeline/folded.h"

#include <algorithm>
#include <array>
#include <map>

namespace heterog::search {
namespace {

// Of the computation, before the model's middle.
constexpr std::array kPartsThere = {0.3, 0.4, 0.5, 0.6, 0.7};

class Folding {
 public:
  Folding(const StageCosts& costs, std::span<const std::vector<DeviceId>> devices, double part)
      : costs_(costs), devices_(devices), part_(part) {
    for (const std::vector<DeviceId>& one : devices) groups_.push_back(costs.group(one));
  }

  // Where no set computes for longer; these may not be all layers.
  std::vector<Stage> within(double seconds) const {
    std::vector<Stage> stages;
    std::vector<double> left(devices_.size(), seconds);
    std::size_t begin = 0;
    const auto add = [&](std::size_t at, double most) {
      const std::size_t end = furthest(begin, at, most);
      if (end == begin) return;
      left[at] -= costs_.compute(begin, end, groups_[at]);
      stages.push_back({begin, end, devices_[at]});
      begin = end;
    };
    const std::size_t last = devices_.size() - 1;
    for (std::size_t at = 0; at < last; ++at) add(at, part_ * seconds);
    for (std::size_t at = last + 1; at-- > 0;) add(at, left[at]);
    return stages;
  }

  bool holds_all(double seconds) const {
    const std::vector<Stage> stages = within(seconds);
    return !stages.empty() && stages.back().end == costs_.layers();
  }

  // On the slowest devices alone all layers find a place.
  double most_seconds() const {
    double most = 0;
    for (const StageCosts::Group& group : groups_) {
      most = std::max(most, costs_.compute(0, costs_.layers(), group));
    }
    return most;
  }

 private:
  // The end of the layers from `begin` on that take at most so long.
  std::size_t furthest(std::size_t begin, std::size_t at, double seconds) const {
    std::size_t low = begin, high = costs_.layers();
    while (low < high) {
      const std::size_t middle = low + (high - low + 1) / 2;
      if (costs_.compute(begin, middle, groups_[at]) <= seconds) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  const StageCosts& costs_;
  std::span<const std::vector<DeviceId>> devices_;
  double part_;
  std::vector<StageCosts::Group> groups_;
};

// What a step of folded stages takes: the busiest devices or network cards, which each stage of a
// micro-batch adds to, and half of what a micro-batch takes at all others, for which the first
// waits on its way and the last on its way back; and the last all-reduce.
double estimate_folded(const StageCosts& costs, std::span<const Stage> stages,
                       std::int64_t micro_batches) {
  struct Busy {
    double computes = 0, moves = 0, gradient_bytes = 0;
  };
  std::map<std::vector<DeviceId>, Busy> busy;
  double through = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const double seconds = costs.compute(stage.begin, stage.end, stage.devices);
    Busy& own = busy[stage.devices];
    own.computes += seconds;
    own.gradient_bytes += costs.gradient_bytes(stage.begin, stage.end);
    through += seconds;
    if (s + 1 == stages.size()) continue;
    const Stage& next = stages[s + 1];
    const double moves = costs.channel(stage.end, stage.devices, next.devices);
    through += moves;
    // There and back are in opposite directions.
    own.moves += moves / 2;
    busy[next.devices].moves += moves / 2;
  }
  double busiest = 0, reduced = 0;
  for (const auto& [devices, one] : busy) {
    busiest = std::max({busiest, one.computes, one.moves});
    reduced = std::max(reduced, one.gradient_bytes * costs.all_reduce_seconds_per_byte(devices));
  }
  return static_cast<double>(micro_batches) * busiest + std::max(0.0, through - busiest) / 2 +
         reduced;
}

}  // namespace

std::vector<Stage> fold(const StageCosts& costs, std::span<const std::vector<DeviceId>> devices,
                        double part) {
  constexpr int kHalvings = 30;
  const Folding folding(costs, devices, part);
  double low = 0, high = folding.most_seconds();
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (folding.holds_all(middle) ? high : low) = middle;
  }
  return folding.within(high);
}

std::vector<Cut> folded_cuts(const CutPool& pool, const Cut& cut, bool from_last,
                             double most_seconds) {
  std::vector<std::vector<DeviceId>> devices;
  for (const Stage& stage : cut.stages) devices.push_back(stage.devices);
  if (from_last) std::ranges::reverse(devices);
  std::vector<Cut> cuts;
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    const std::int64_t parts = pool.micro_batches[m];
    if (parts > pool.parts_of(cut)) continue;
    const StageCosts& costs = pool.of(cut.recompute).costs[m];
    for (double part : kPartsThere) {
      std::vector<Stage> stages = fold(costs, devices, part);
      const double seconds = estimate_folded(costs, stages, parts);
      if (seconds > most_seconds || stages.size() <= cut.stages.size()) continue;
      cuts.push_back({.seconds = seconds,
                      .busiest = busiest_stage(costs, stages, parts),
                      .stages = std::move(stages),
                      .costs = m,
                      .line = cut.line,
                      .recompute = cut.recompute});
    }
  }
  std::ranges::stable_sort(cuts, {}, &Cut::seconds);
  return cuts;
}

}  // namespace heterog::search

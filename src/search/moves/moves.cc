// How each kind of move draws its groups and its target.
#include "search/moves/moves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "decide/decisions.h"
#include "decide/pass_turns.h"
#include "search/moves/draw.h"
#include "search/moves/rebalance.h"
#include "space/device_sets.h"

namespace heterog::search {

namespace {

using decide::Replica;
using decide::SyncMethod;

void add_distinct(std::vector<Replicas>& palette, Replicas replicas) {
  if (replicas.empty()) return;
  if (std::find(palette.begin(), palette.end(), replicas) == palette.end()) {
    palette.push_back(std::move(replicas));
  }
}

// `devices` with one replica each, with their proportional replicas, and with their balanced ones.
void add_sets(const cost::Problem& problem, const space::ModelSeconds& seconds,
              const std::vector<DeviceId>& devices, std::vector<Replicas>& palette) {
  if (devices.size() < 2) return;
  Replicas even, proportional;
  for (DeviceId device : devices) {
    even.push_back({device, 1});
    proportional.push_back({device, static_cast<double>(problem.proportional[device.value()])});
  }
  add_distinct(palette, even);
  const bool equal = std::all_of(proportional.begin(), proportional.end(), [&](const Replica& r) {
    return r.weight == proportional.front().weight;
  });
  if (equal) return;
  add_distinct(palette, proportional);
  add_distinct(palette, space::balanced_replicas(problem, seconds, devices));
}

}  // namespace

Palette replica_palette(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  Palette palette;
  for (DeviceId device : cluster.device_ids()) palette.single.push_back({{device, 1}});
  // The replicas of EV and CP exactly as the baselines spell them.
  add_distinct(palette.sets, decide::even_decision(problem, SyncMethod::kAllReduce).replicas);
  add_distinct(palette.sets,
               decide::proportional_decision(problem, SyncMethod::kAllReduce).replicas);
  const space::ModelSeconds seconds(problem);
  const space::DeviceSets sets = space::device_sets(problem);
  for (const auto& machine : sets.machines) add_sets(problem, seconds, machine, palette.machines);
  for (std::size_t i = 0; i < sets.types.size(); ++i) {
    add_sets(problem, seconds, sets.types[i], palette.sets);
    add_sets(problem, seconds, sets.fastest[i], palette.sets);
  }
  return palette;
}

MoveMaker::MoveMaker(const cost::Problem& problem)
    : problem_(problem),
      count_(problem.grouping.count()),
      groups_(space::summarize_groups(problem)),
      palette_(replica_palette(problem)) {
  double time = 0, parameters = 0;
  std::map<std::uint64_t, std::vector<GroupId>> classes;
  for (GroupId group : id_range<GroupId>(count_)) {
    time_sums_.push_back(time += groups_[group].seconds);
    parameter_sums_.push_back(parameters += static_cast<double>(groups_[group].parameter_bytes));
    classes[groups_[group].likeness].push_back(group);
    if (groups_[group].parameter_bytes > 0) heaviest_.push_back(group);
  }
  for (auto& [likeness, alike] : classes) {
    if (alike.size() > 1) alike_.push_back(std::move(alike));
  }
  const auto density = [&](GroupId group) {
    return static_cast<double>(groups_[group].parameter_bytes) / (groups_[group].seconds + 1e-9);
  };
  std::stable_sort(heaviest_.begin(), heaviest_.end(),
                   [&](GroupId a, GroupId b) { return density(a) > density(b); });
}

Replicas MoveMaker::draw_replicas(const decide::Strategy& strategy, Rng& rng) const {
  // Half of the time what another group has: keeping to few sets of slices avoids resharding.
  if (rng.below(2) == 0) {
    const GroupId other(rng.below(count_));
    return decision_of(strategy, other).replicas;
  }
  return draw_palette(rng);
}

// Kinds of sets first: on large clusters there are far more single devices and machines than other
// sets.
const Replicas& MoveMaker::draw_palette(Rng& rng) const {
  const std::vector<Replicas>* sets = &palette_.sets;
  const std::uint64_t kind = rng.below(4);
  if (kind == 0) sets = &palette_.single;
  if (kind == 1 && !palette_.machines.empty()) sets = &palette_.machines;
  return (*sets)[rng.below(sets->size())];
}

GroupId MoveMaker::draw_group(Rng& rng) const {
  switch (rng.below(3)) {
    case 0:
      return GroupId(draw(time_sums_, rng));
    case 1:
      return GroupId(draw(parameter_sums_, rng));
    default:
      return GroupId(rng.below(count_));
  }
}

std::vector<GroupId> MoveMaker::run_at(std::size_t first, std::size_t length) const {
  std::vector<GroupId> groups;
  for (std::size_t i = first; i < std::min(first + length, count_); ++i)
    groups.push_back(GroupId(i));
  return groups;
}

std::vector<GroupId> MoveMaker::draw_alike(Rng& rng) const {
  if (alike_.empty()) return {draw_group(rng)};
  const std::vector<GroupId>& all = alike_[rng.below(alike_.size())];
  if (rng.below(2) == 0) return all;
  const std::size_t length = draw_length(all.size(), rng);
  const std::size_t first = rng.below(all.size() - length + 1);
  return {all.begin() + first, all.begin() + first + length};
}

Move MoveMaker::boundary(const Incumbent& from, Rng& rng) const {
  if (from.strategy.micro_batches > 1) return stage_boundary(from, rng);
  // The first boundary at or after a random place, round the end.
  const std::size_t start = rng.below(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t at = (start + i) % count_;
    if (at + 1 >= count_) continue;
    const decide::UnitDecision& left = decision_of(from.strategy, GroupId(at));
    const decide::UnitDecision& right = decision_of(from.strategy, GroupId(at + 1));
    if (left.replicas == right.replicas && left.sync == right.sync) continue;
    const std::size_t length = draw_length(std::max<std::size_t>(1, count_ / 8), rng);
    const bool rightwards = rng.below(2) == 0;
    const decide::UnitDecision& source = rightwards ? left : right;
    const std::size_t first = rightwards ? at + 1 : (at + 1 >= length ? at + 1 - length : 0);
    return {.groups = run_at(first, rightwards ? length : at + 1 - first),
            .replicas = source.replicas,
            .sync = source.sync};
  }
  return propose(from, MoveKind::kRun, rng);  // all alike: make a boundary first
}

// A layer or a few over a stage's boundary, mostly where neighbours are busy for unlike times, from
// the busier one.
Move MoveMaker::stage_boundary(const Incumbent& from, Rng& rng) const {
  const IdVector<DeviceId, Nanoseconds>& busy = from.measured.busy;
  const auto busiest = [&](std::size_t at) {
    Nanoseconds most = 0;
    if (busy.empty()) return most;
    for (const Replica& replica : decision_of(from.strategy, GroupId(at)).replicas) {
      most = std::max(most, busy[replica.device]);
    }
    return most;
  };
  std::vector<std::size_t> places;  // of the left one
  std::vector<double> sums;
  double sum = 0;
  for (std::size_t at = 0; at + 1 < count_; ++at) {
    if (decision_of(from.strategy, GroupId(at)).replicas ==
        decision_of(from.strategy, GroupId(at + 1)).replicas) {
      continue;
    }
    places.push_back(at);
    sums.push_back(sum += 1e-3 + std::abs(to_seconds(busiest(at) - busiest(at + 1))));
  }
  if (places.empty()) return propose(from, MoveKind::kRun, rng);
  const std::size_t at =
      rng.below(3) == 0 ? places[rng.below(places.size())] : places[draw(sums, rng)];
  const bool left_busier = busiest(at) > busiest(at + 1);
  const bool from_left = rng.below(4) == 0 ? !left_busier : left_busier;
  const std::size_t length = draw_length(3, rng);
  const decide::UnitDecision& source = decision_of(from.strategy, GroupId(from_left ? at + 1 : at));
  const std::size_t first = from_left ? (at + 1 >= length ? at + 1 - length : 0) : at + 1;
  return {.groups = run_at(first, from_left ? at + 1 - first : length),
          .replicas = source.replicas,
          .sync = source.sync};
}

Move MoveMaker::toggle_sync(const decide::Strategy& strategy, Rng& rng) const {
  std::vector<GroupId> groups;
  switch (rng.below(4)) {
    case 0:
      groups = {GroupId(draw(parameter_sums_, rng))};
      break;
    case 1:
      groups = draw_alike(rng);
      break;
    case 2:
      groups = run_at(rng.below(count_), draw_length(count_, rng));
      break;
    default:
      groups.assign(
          heaviest_.begin(),
          heaviest_.begin() + (heaviest_.empty() ? 0 : draw_length(heaviest_.size(), rng)));
  }
  if (groups.empty()) groups = {draw_group(rng)};
  const SyncMethod now = decision_of(strategy, groups[rng.below(groups.size())]).sync;
  return {.groups = std::move(groups),
          .sync = now == SyncMethod::kAllReduce ? SyncMethod::kParameterServer
                                                : SyncMethod::kAllReduce};
}

Move MoveMaker::reweigh(const Incumbent& from, Rng& rng) const {
  const Replicas& before = decision_of(from.strategy, draw_group(rng)).replicas;
  const Replicas samples = in_samples(before, problem_.batch);
  if (samples.size() < 2) return propose(from, MoveKind::kOne, rng);
  const std::size_t giver = rng.below(samples.size());
  std::size_t taker = rng.below(samples.size() - 1);
  if (taker >= giver) ++taker;
  const auto most = static_cast<std::size_t>(samples[giver].weight);
  return {.reweigh = {
              {before, moved(before, {&samples[giver].device, 1}, {&samples[taker].device, 1},
                             static_cast<std::int64_t>(draw_length(most, rng)), problem_.batch)}}};
}

// A stretch of groups, alike ones or all: to run again, if a device is nearly full; else not to.
Move MoveMaker::recompute(const Incumbent& from, Rng& rng) const {
  bool tight = false;
  for (DeviceId device : problem_.cluster->device_ids()) {
    tight |=
        from.measured.peak_bytes[device] > problem_.cluster->device(device).memory_bytes / 16 * 15;
  }
  const bool some = std::ranges::any_of(from.strategy.units, &decide::UnitDecision::recompute);
  if (!tight && !some) return propose(from, MoveKind::kOne, rng);
  Move move;
  switch (rng.below(3)) {
    case 0:
      move.groups = run_at(0, count_);
      break;
    case 1:
      move.groups = draw_alike(rng);
      break;
    default:
      move.groups = run_at(draw_group(rng).value(), draw_length(count_, rng));
  }
  move.recompute = !decision_of(from.strategy, move.groups.front()).recompute;
  return move;
}

decide::Strategy MoveMaker::moved_to(const decide::Strategy& strategy, const Move& move) const {
  decide::Strategy next = apply(strategy, move);
  if (next.strict && !decide::stages_in_line(problem_, in_one_spelling(next))) {
    next = apply(next, {.strict = false});
  }
  return next;
}

// Of several micro-batches: how many, or in which turns.
Move MoveMaker::turns(const decide::Strategy& now, Rng& rng) const {
  const std::int64_t count = now.micro_batches;
  switch (rng.below(4)) {
    case 0: {
      // All but kNone, the first.
      const std::size_t drawn = 1 + rng.below(decide::kPatterns.size() - 1);
      return {.pattern = decide::kPatterns[drawn], .strict = now.strict};
    }
    case 1:
      if (now.pattern != decide::Pattern::kNone) return {.strict = !now.strict};
      return {.pattern = decide::Pattern::kOneForwardOneBackward, .strict = false};
    default: {
      const std::array others = {count / 2, count * 3 / 4, count - 1,
                                 count + 1, count * 4 / 3, count * 2};
      const std::int64_t drawn = others[rng.below(others.size())];
      return {.micro_batches = std::clamp<std::int64_t>(drawn, 2, problem_.batch)};
    }
  }
}

Move MoveMaker::propose(const Incumbent& from, MoveKind kind, Rng& rng) const {
  const decide::Strategy& strategy = from.strategy;
  switch (kind) {
    case MoveKind::kOne:
      return {.groups = {draw_group(rng)}, .replicas = draw_replicas(strategy, rng)};
    case MoveKind::kRun: {
      const std::size_t first = draw_group(rng).value();
      return {.groups = run_at(first, draw_length(count_, rng)),
              .replicas = draw_replicas(strategy, rng)};
    }
    case MoveKind::kAlike:
      return {.groups = draw_alike(rng), .replicas = draw_replicas(strategy, rng)};
    case MoveKind::kBoundary:
      return boundary(from, rng);
    case MoveKind::kHeaviest: {
      if (heaviest_.empty()) return propose(from, MoveKind::kOne, rng);
      const std::size_t n = draw_length(heaviest_.size(), rng);
      return {.groups = {heaviest_.begin(), heaviest_.begin() + static_cast<std::ptrdiff_t>(n)},
              .replicas = draw_replicas(strategy, rng)};
    }
    case MoveKind::kSync:
      return toggle_sync(strategy, rng);
    case MoveKind::kReweigh:
      return reweigh(from, rng);
    case MoveKind::kBalance:
      for (int i = 0; i < 4; ++i) {
        if (auto move = rebalance(problem_, groups_, from, draw_group(rng), rng)) return *move;
      }
      return reweigh(from, rng);
    case MoveKind::kReplace: {
      const Replicas& before = decision_of(strategy, draw_group(rng)).replicas;
      return {.reweigh = {{before, draw_palette(rng)}}};
    }
    case MoveKind::kRecompute:
      return recompute(from, rng);
    case MoveKind::kSchedule: {
      if (strategy.micro_batches > 1 && rng.below(3) != 0) return turns(strategy, rng);
      if (rng.below(3) != 0) {
        const std::size_t drawn = rng.below(decide::kSearchedBuckets.size());
        return {.bucket_bytes = decide::kSearchedBuckets[drawn]};
      }
      if (strategy.pattern != decide::Pattern::kNone && !strategy.strict) {
        return turns(strategy, rng);
      }
      return {.order = decide::kSearchedOrders[rng.below(decide::kSearchedOrders.size())]};
    }
  }
  ENSURE(false);
}

}  // namespace heterog::search

// How each kind of move draws its groups and its target.
#include "planner/moves.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "space/group_summary.h"

namespace heterog::planner {

namespace {

using compiler::Replica;
using compiler::SyncMethod;

// Index drawn in proportion to the steps of `sums`; uniform if they sum to zero.
std::size_t draw(const std::vector<double>& sums, Rng& rng) {
  const double total = sums.back();
  if (total <= 0) return rng.below(sums.size());
  const auto it = std::upper_bound(sums.begin(), sums.end(), rng.uniform() * total);
  return std::min<std::size_t>(it - sums.begin(), sums.size() - 1);
}

// 1, 2, 4, … up to `most`, each as likely, then a uniform length between it and the next.
std::size_t draw_length(std::size_t most, Rng& rng) {
  std::size_t levels = 1;
  while ((std::size_t{1} << levels) <= most) ++levels;
  const std::size_t low = std::size_t{1} << rng.below(levels);
  return std::min(most, low + rng.below(low));
}

void add_distinct(std::vector<Replicas>& palette, Replicas replicas) {
  if (replicas.empty()) return;
  if (std::find(palette.begin(), palette.end(), replicas) == palette.end()) {
    palette.push_back(std::move(replicas));
  }
}

// `devices` with one replica each, and with their proportional replicas.
void add_sets(const cost::Problem& problem, const std::vector<DeviceId>& devices,
              std::vector<Replicas>& palette) {
  Replicas even, proportional;
  for (DeviceId device : devices) {
    even.push_back({device, 1});
    proportional.push_back({device, static_cast<double>(problem.proportional[device.value()])});
  }
  add_distinct(palette, even);
  const bool equal = std::all_of(proportional.begin(), proportional.end(), [&](const Replica& r) {
    return r.weight == proportional.front().weight;
  });
  if (!equal) add_distinct(palette, proportional);
}

}  // namespace

std::vector<Replicas> replica_palette(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  std::vector<Replicas> palette;
  for (DeviceId device : cluster.device_ids()) add_distinct(palette, {{device, 1}});
  // The replicas of EV and CP exactly as the baselines spell them.
  add_distinct(palette, compiler::even_decision(problem, SyncMethod::kAllReduce).replicas);
  add_distinct(palette, compiler::proportional_decision(problem, SyncMethod::kAllReduce).replicas);
  for (MachineId machine : id_range<MachineId>(cluster.machine_count())) {
    add_sets(problem, cluster.machine(machine).devices, palette);
  }
  std::vector<DeviceTypeId> types;
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) types.push_back(type);
  std::stable_sort(types.begin(), types.end(), [&](DeviceTypeId a, DeviceTypeId b) {
    return problem.costs.model_speed(a) > problem.costs.model_speed(b);
  });
  std::vector<DeviceId> fastest;
  for (DeviceTypeId type : types) {
    std::vector<DeviceId> of_type;
    for (DeviceId device : cluster.device_ids()) {
      if (cluster.device(device).type == type) of_type.push_back(device);
    }
    fastest.insert(fastest.end(), of_type.begin(), of_type.end());
    std::sort(fastest.begin(), fastest.end());
    add_sets(problem, of_type, palette);
    add_sets(problem, fastest, palette);
  }
  return palette;
}

MoveMaker::MoveMaker(const cost::Problem& problem)
    : problem_(problem), count_(problem.grouping.count()), palette_(replica_palette(problem)) {
  const space::GroupSummaries groups = space::summarize_groups(problem);
  double time = 0, parameters = 0;
  std::map<std::uint64_t, std::vector<GroupId>> classes;
  for (GroupId group : id_range<GroupId>(count_)) {
    time_sums_.push_back(time += groups[group].seconds);
    parameter_sums_.push_back(parameters += static_cast<double>(groups[group].parameter_bytes));
    classes[groups[group].likeness].push_back(group);
    if (groups[group].parameter_bytes > 0) heaviest_.push_back(group);
  }
  for (auto& [likeness, alike] : classes) {
    if (alike.size() > 1) alike_.push_back(std::move(alike));
  }
  const auto density = [&](GroupId group) {
    return static_cast<double>(groups[group].parameter_bytes) / (groups[group].seconds + 1e-9);
  };
  std::stable_sort(heaviest_.begin(), heaviest_.end(),
                   [&](GroupId a, GroupId b) { return density(a) > density(b); });
}

Replicas MoveMaker::draw_replicas(const Candidate& candidate, Rng& rng) const {
  // Half of the time what another group has: keeping to few sets of slices avoids resharding.
  if (rng.below(2) == 0) {
    const GroupId other(rng.below(count_));
    return candidate.shares[candidate.share_of[other]];
  }
  return palette_[rng.below(palette_.size())];
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

Move MoveMaker::boundary(const Candidate& candidate, Rng& rng) const {
  // The first boundary at or after a random place, round the end.
  const std::size_t start = rng.below(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::size_t at = (start + i) % count_;
    if (at + 1 >= count_) continue;
    const GroupId left(at), right(at + 1);
    if (candidate.share_of[left] == candidate.share_of[right] &&
        candidate.sync_of[left] == candidate.sync_of[right]) {
      continue;
    }
    const std::size_t length = draw_length(std::max<std::size_t>(1, count_ / 8), rng);
    const bool rightwards = rng.below(2) == 0;
    const GroupId source = rightwards ? left : right;
    const std::size_t first = rightwards ? at + 1 : (at + 1 >= length ? at + 1 - length : 0);
    return {.groups = run_at(first, rightwards ? length : at + 1 - first),
            .replicas = candidate.shares[candidate.share_of[source]],
            .sync = candidate.sync_of[source]};
  }
  return propose(candidate, MoveKind::kRun, rng);  // all alike: make a boundary first
}

Move MoveMaker::toggle_sync(const Candidate& candidate, Rng& rng) const {
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
  const SyncMethod now = candidate.sync_of[groups[rng.below(groups.size())]];
  return {.groups = std::move(groups),
          .sync = now == SyncMethod::kAllReduce ? SyncMethod::kParameterServer
                                                : SyncMethod::kAllReduce};
}

Move MoveMaker::reweigh(const Candidate& candidate, Rng& rng) const {
  const Replicas& from = candidate.shares[candidate.share_of[draw_group(rng)]];
  if (from.size() < 2) return propose(candidate, MoveKind::kOne, rng);
  // As whole samples, so that a move of one sample is one sample.
  Replicas to;
  for (const compiler::Slice& slice : compiler::slice_batch(from, problem_.batch)) {
    to.push_back({slice.device, static_cast<double>(slice.size())});
  }
  if (to.size() < 2) return propose(candidate, MoveKind::kOne, rng);
  const std::size_t giver = rng.below(to.size());
  std::size_t taker = rng.below(to.size() - 1);
  if (taker >= giver) ++taker;
  const auto most = static_cast<std::size_t>(to[giver].weight);
  const auto samples = static_cast<double>(draw_length(most, rng));
  to[giver].weight -= samples;
  to[taker].weight += samples;
  if (to[giver].weight <= 0) to.erase(to.begin() + static_cast<std::ptrdiff_t>(giver));
  return {.reweigh = {{from, to}}};
}

Move MoveMaker::propose(const Candidate& candidate, MoveKind kind, Rng& rng) const {
  switch (kind) {
    case MoveKind::kOne:
      return {.groups = {draw_group(rng)}, .replicas = draw_replicas(candidate, rng)};
    case MoveKind::kRun: {
      const std::size_t first = draw_group(rng).value();
      return {.groups = run_at(first, draw_length(count_, rng)),
              .replicas = draw_replicas(candidate, rng)};
    }
    case MoveKind::kAlike:
      return {.groups = draw_alike(rng), .replicas = draw_replicas(candidate, rng)};
    case MoveKind::kBoundary:
      return boundary(candidate, rng);
    case MoveKind::kHeaviest: {
      if (heaviest_.empty()) return propose(candidate, MoveKind::kOne, rng);
      const std::size_t n = draw_length(heaviest_.size(), rng);
      return {.groups = {heaviest_.begin(), heaviest_.begin() + static_cast<std::ptrdiff_t>(n)},
              .replicas = draw_replicas(candidate, rng)};
    }
    case MoveKind::kSync:
      return toggle_sync(candidate, rng);
    case MoveKind::kReweigh:
      return reweigh(candidate, rng);
    case MoveKind::kReplace: {
      const Replicas& from = candidate.shares[candidate.share_of[draw_group(rng)]];
      return {.reweigh = {{from, palette_[rng.below(palette_.size())]}}};
    }
    case MoveKind::kSchedule: {
      constexpr std::array<Bytes, 5> kBuckets = {0, 1 << 22, 1 << 24, 1 << 26, 1 << 28};
      if (rng.below(3) != 0) return {.bucket_bytes = kBuckets[rng.below(kBuckets.size())]};
      return {.order = compiler::kSearchedOrders[rng.below(compiler::kSearchedOrders.size())]};
    }
  }
  ENSURE(false);
}

}  // namespace heterog::planner

// Who gives and who takes is drawn by busy time; how much follows from the time of a sample.
#include "search/moves/rebalance.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "search/moves/draw.h"

namespace heterog::search {

namespace {

using decide::Replica;
using Devices = std::vector<DeviceId>;

enum class Scope : std::uint8_t { kGiver, kStretch, kSlices };

bool full(const cluster::Cluster& cluster, const oracle::Measured& measured, DeviceId device) {
  return measured.peak_bytes[device] > cluster.device(device).memory_bytes / 64 * 63;
}

bool holds(const Replicas& replicas, const Devices& devices) {
  return std::ranges::any_of(replicas, [&](const Replica& replica) {
    return std::ranges::find(devices, replica.device) != devices.end();
  });
}

Devices of_type(const cluster::Cluster& cluster, DeviceTypeId type) {
  Devices devices;
  for (DeviceId device : cluster.device_ids()) {
    if (cluster.device(device).type == type) devices.push_back(device);
  }
  return devices;
}

// Empty if there is nothing to even out.
std::optional<std::pair<DeviceId, DeviceId>> draw_pair(const cluster::Cluster& cluster,
                                                       const oracle::Measured& measured, Rng& rng) {
  const IdVector<DeviceId, Nanoseconds>& busy = measured.busy;
  if (busy.size() < 2) return std::nullopt;
  const auto [least, most] = std::minmax_element(busy.begin(), busy.end());
  std::vector<double> gives, takes;
  double given = 0, taken = 0;
  for (DeviceId device : cluster.device_ids()) {
    gives.push_back(given += static_cast<double>(busy[device] - *least));
    takes.push_back(
        taken += full(cluster, measured, device) ? 0 : static_cast<double>(*most - busy[device]));
  }
  if (given <= 0 || taken <= 0) return std::nullopt;
  const DeviceId giver(draw(gives, rng)), taker(draw(takes, rng));
  if (busy[giver] <= busy[taker]) return std::nullopt;
  return std::pair(giver, taker);
}

}  // namespace

Replicas in_samples(const Replicas& replicas, std::int64_t batch) {
  Replicas samples;
  for (const decide::Slice& slice : decide::slice_batch(replicas, batch)) {
    if (slice.size() > 0) samples.push_back({slice.device, static_cast<double>(slice.size())});
  }
  return samples;
}

Replicas moved(const Replicas& replicas, std::span<const DeviceId> givers,
               std::span<const DeviceId> takers, std::int64_t samples, std::int64_t batch) {
  Replicas to = in_samples(replicas, batch);
  std::int64_t hand = 0;
  for (Replica& replica : to) {
    if (std::ranges::find(givers, replica.device) == givers.end()) continue;
    const std::int64_t given = std::min(samples, static_cast<std::int64_t>(replica.weight));
    replica.weight -= static_cast<double>(given);
    hand += given;
  }
  if (hand == 0) return {};
  const auto count = static_cast<std::int64_t>(takers.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto gets = static_cast<double>(hand / count + (i < hand % count ? 1 : 0));
    const DeviceId taker = takers[static_cast<std::size_t>(i)];
    const auto at = std::ranges::find(to, taker, &Replica::device);
    if (at != to.end()) {
      at->weight += gets;
    } else {
      to.push_back({taker, gets});
    }
  }
  std::erase_if(to, [](const Replica& replica) { return replica.weight <= 0; });
  std::ranges::stable_sort(to, {}, &Replica::device);
  return to;
}

Replicas level(const cost::Problem& problem, const space::GroupSummaries& groups,
               const Incumbent& from, const Replicas& share, double damping) {
  const cluster::Cluster& cluster = *problem.cluster;
  const IdVector<DeviceId, Nanoseconds>& busy = from.measured.busy;
  IdVector<DeviceTypeId, double> seconds(cluster.type_count(), 0);  // of a sample
  for (GroupId group : id_range<GroupId>(groups.size())) {
    if (decision_of(from.strategy, group).replicas != share) continue;
    for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
      seconds[type] += groups[group].seconds_on[type] / static_cast<double>(problem.batch);
    }
  }
  const auto sample = [&](DeviceId device) {
    return std::max(1e-12, seconds[cluster.device(device).type]);
  };
  Replicas replicas = in_samples(share, problem.batch);
  // All end at the same time t if samples are moved so that Σ (t − busy) / seconds of a sample = 0,
  // summed over those that take part.
  const auto level_of = [&](auto&& takes_part) {
    double weighted = 0, weights = 0;
    for (const Replica& replica : replicas) {
      if (!takes_part(replica.device)) continue;
      weighted += to_seconds(busy[replica.device]) / sample(replica.device);
      weights += 1 / sample(replica.device);
    }
    return weights > 0 ? weighted / weights : 0;
  };
  const double of_all = level_of([](DeviceId) { return true; });
  // A device without memory left gives, but does not take.
  const auto takes_part = [&](DeviceId device) {
    return to_seconds(busy[device]) > of_all || !full(cluster, from.measured, device);
  };
  const double together = level_of(takes_part);
  for (Replica& replica : replicas) {
    if (!takes_part(replica.device)) continue;
    const double apart = together - to_seconds(busy[replica.device]);
    replica.weight = std::max(0.0, replica.weight + damping * apart / sample(replica.device));
  }
  return in_samples(replicas, problem.batch);
}

std::optional<Move> rebalance(const cost::Problem& problem, const space::GroupSummaries& groups,
                              const Incumbent& from, GroupId around, Rng& rng) {
  const cluster::Cluster& cluster = *problem.cluster;
  const auto pair = draw_pair(cluster, from.measured, rng);
  if (!pair) return std::nullopt;
  const auto [giver, taker] = *pair;
  Devices givers{giver}, takers{taker};
  const DeviceTypeId giving = cluster.device(giver).type, taking = cluster.device(taker).type;
  if (giving != taking && rng.below(3) == 0) {
    givers = of_type(cluster, giving);
    takers = of_type(cluster, taking);
  }
  const auto replicas = [&](GroupId group) -> const Replicas& {
    return decision_of(from.strategy, group).replicas;
  };
  if (!holds(replicas(around), givers)) return std::nullopt;

  const std::uint64_t drawn = rng.below(5);
  if (drawn == 4) {
    return Move{.reweigh = {{replicas(around), level(problem, groups, from, replicas(around),
                                                     0.25 + 0.75 * rng.uniform())}}};
  }
  const Scope scope = drawn == 0 ? Scope::kGiver : drawn == 1 ? Scope::kStretch : Scope::kSlices;
  std::size_t first = 0, end = groups.size();
  if (scope == Scope::kStretch) {
    const std::size_t length = draw_length(groups.size(), rng);
    first = around.value() - std::min<std::size_t>(around.value(), rng.below(length));
    end = std::min(end, first + length);
  }
  std::vector<GroupId> chosen;
  double seconds = 0;  // that a sample of them takes a device, the mean of giver and taker
  for (std::size_t i = first; i < end; ++i) {
    const GroupId group(i);
    const bool takes_part = scope == Scope::kGiver ? holds(replicas(group), givers)
                                                   : replicas(group) == replicas(around);
    if (!takes_part) continue;
    chosen.push_back(group);
    seconds += (groups[group].seconds_on[giving] + groups[group].seconds_on[taking]) /
               static_cast<double>(2 * problem.batch);
  }
  const Nanoseconds apart = from.measured.busy[giver] - from.measured.busy[taker];
  const double even = to_seconds(apart) / 2 / std::max(1e-12, seconds);
  const double wanted = std::min(static_cast<double>(problem.batch), even * 1.5 * rng.uniform());
  const auto samples = std::max<std::int64_t>(1, std::llround(wanted));

  Move move;
  if (scope == Scope::kStretch) {
    Replicas to = moved(replicas(around), givers, takers, samples, problem.batch);
    if (to.empty()) return std::nullopt;
    move.groups = std::move(chosen);
    move.replicas = std::move(to);
    return move;
  }
  std::vector<Replicas> done;
  for (GroupId group : chosen) {
    if (std::ranges::find(done, replicas(group)) != done.end()) continue;
    done.push_back(replicas(group));
    Replicas to = moved(replicas(group), givers, takers, samples, problem.batch);
    if (!to.empty()) move.reweigh.emplace_back(replicas(group), std::move(to));
  }
  if (move.reweigh.empty()) return std::nullopt;
  return move;
}

}  // namespace heterog::search

// Lines through the costs of groups, formulas of collectives, and sums of what changes.
#include "planner/scorer/move_estimates.h"

#include <algorithm>
#include <cmath>

#include "cost/collective.h"
#include "space/cluster_summary.h"
#include "space/communication.h"
#include "space/op_graph.h"

namespace heterog::planner {

namespace {

using compiler::Slice;
using compiler::SyncMethod;
using Part = std::pair<double, double>;

double length(const Part& a) { return a.second - a.first; }
double overlap(const Part& a, const Part& b) {
  return std::max(0.0, std::min(a.second, b.second) - std::max(a.first, b.first));
}

}  // namespace

MoveEstimates::MoveEstimates(const cost::Problem& problem)
    : problem_(problem),
      groups_(problem.grouping.count()),
      inside_(problem.cluster->device_count(), 0),
      outside_(problem.cluster->machine_count(), 0) {
  const cluster::Cluster& cluster = *problem.cluster;
  const graph::ModelGraph& graph = *problem.graph;
  const space::GroupSummaries summaries = space::summarize_groups(problem);
  double total = 0;
  for (GroupId id : id_range<GroupId>(groups_.size())) {
    Group& group = groups_[id];
    group.fixed.assign(cluster.type_count(), 0);
    group.slope.assign(cluster.type_count(), 0);
    group.parameter_bytes = static_cast<double>(summaries[id].parameter_bytes);
    group.state_bytes = static_cast<double>(summaries[id].state_bytes());
    group.activation_bytes = static_cast<double>(summaries[id].activation_bytes);
    parameter_bytes_ += group.parameter_bytes;
    activation_bytes_ += group.activation_bytes;
    total += summaries[id].seconds;
  }
  double at = 0;
  for (GroupId id : id_range<GroupId>(groups_.size())) {
    groups_[id].begin = at / std::max(1e-12, total);
    at += summaries[id].seconds;
    groups_[id].end = at / std::max(1e-12, total);
  }
  // A line through two points: the batch, and about the least slice that is common.
  const std::int64_t some = std::max<std::int64_t>(1, problem.batch / 8);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    Group& group = groups_[problem.grouping.group_of[op]];
    for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
      const double whole = to_seconds(problem.costs.duration(op, type, problem.batch));
      if (!problem.splits->sliceable[op] || some == problem.batch) {
        group.fixed[type] += whole;
        continue;
      }
      const double part = to_seconds(problem.costs.duration(op, type, some));
      const double slope =
          std::max(0.0, (whole - part) / static_cast<double>(problem.batch - some));
      group.slope[type] += slope;
      group.fixed[type] += whole - slope * static_cast<double>(problem.batch);
    }
  }
  const IdVector<TensorId, GroupId> owner = space::parameter_groups(problem);
  for (TensorId parameter : graph.parameters()) {
    if (!owner[parameter].valid()) continue;
    Group& group = groups_[owner[parameter]];
    const auto own = static_cast<double>(graph.bytes(parameter, problem.batch));
    group.parameters += 1;
    group.alone_bytes += own * own / std::max(1.0, parameter_bytes_);
  }
  const space::OpGraph ops = space::make_op_graph(problem);
  std::map<std::pair<GroupId, GroupId>, double> bytes;
  for (const space::OpEdge& edge : ops.edges) {
    const GroupId a = problem.grouping.group_of[ops.nodes[edge.source]];
    const GroupId b = problem.grouping.group_of[ops.nodes[edge.target]];
    if (a != b) bytes[std::minmax(a, b)] += static_cast<double>(edge.bytes);
  }
  for (const auto& [pair, moved] : bytes) {
    groups_[pair.first].neighbours.emplace_back(pair.second, moved);
    groups_[pair.second].neighbours.emplace_back(pair.first, moved);
  }
  for (DeviceId a : cluster.device_ids()) {
    for (DeviceId b : cluster.device_ids()) {
      if (a == b) continue;
      double& known = cluster.same_machine(a, b) ? inside_[a] : outside_[cluster.device(a).machine];
      known = std::max(known, space::seconds_per_byte(cluster, a, b));
    }
  }
}

double MoveEstimates::seconds(const Group& group, const Slice& slice) const {
  const DeviceTypeId type = problem_.cluster->device(slice.device).type;
  return group.fixed[type] + group.slope[type] * static_cast<double>(slice.size());
}

const MoveEstimates::Sync& MoveEstimates::sync_of(const std::vector<Slice>& slices) {
  std::vector<DeviceId> devices;
  for (const Slice& slice : slices) devices.push_back(slice.device);
  std::ranges::sort(devices);
  const auto [at, is_new] = syncs_.try_emplace(devices);
  if (!is_new || devices.size() < 2) return at->second;
  const cluster::Cluster& cluster = *problem_.cluster;
  // A line through two sizes; which algorithm runs depends on the size.
  constexpr Bytes kSmall = 1 << 12, kLarge = 1 << 26;
  const double small = to_seconds(cost::all_reduce_cost(cluster, devices, kSmall).duration);
  const double large = to_seconds(cost::all_reduce_cost(cluster, devices, kLarge).duration);
  at->second.reduce_fixed = small;
  at->second.reduce_per_byte = (large - small) / static_cast<double>(kLarge - kSmall);
  const std::vector<space::ServerPort> ports = space::server_ports(cluster, devices);
  const double served_small = space::server_seconds(ports, kSmall, 0);
  const double served_large = space::server_seconds(ports, kLarge, 0);
  at->second.server_fixed = served_small;
  at->second.server_per_byte = (served_large - served_small) / static_cast<double>(kLarge - kSmall);
  at->second.alone_per_byte = std::ranges::min(ports, {}, &space::ServerPort::per_byte).per_byte;
  return at->second;
}

std::size_t MoveEstimates::add_slices(const Replicas& replicas) {
  Slices made{.part = {}, .sync = nullptr};
  made.part.assign(problem_.cluster->device_count(), {0, 0});
  for (const Slice& slice : compiler::slice_batch(replicas, problem_.batch)) {
    if (slice.size() == 0) continue;
    made.slices.push_back(slice);
    made.part[slice.device] = {
        static_cast<double>(slice.begin) / static_cast<double>(problem_.batch),
        static_cast<double>(slice.end) / static_cast<double>(problem_.batch)};
  }
  made.sync = &sync_of(made.slices);
  slices_.push_back(std::move(made));
  return slices_.size() - 1;
}

double MoveEstimates::moving_seconds(const Slices& from, const Slices& to) const {
  const cluster::Cluster& cluster = *problem_.cluster;
  double most = 0;
  for (MachineId machine : id_range<MachineId>(cluster.machine_count())) {
    double had = 0, has = 0, kept = 0;
    for (DeviceId a : cluster.machine(machine).devices) {
      had += length(from.part[a]);
      if (length(to.part[a]) == 0) continue;
      has += length(to.part[a]);
      double mine = 0;
      for (DeviceId b : cluster.machine(machine).devices) mine += overlap(from.part[b], to.part[a]);
      kept += mine;
      most = std::max(most, inside_[a] * (mine - overlap(from.part[a], to.part[a])));
    }
    most = std::max(most, outside_[machine] * (std::max(had, has) - kept));
  }
  return most;
}

double MoveEstimates::seconds_per_byte(std::size_t from, std::size_t to) {
  if (from == to) return 0;
  const auto [low, high] = std::minmax(from, to);
  std::vector<double>& known = slices_[high].movable;
  if (known.size() <= low) known.resize(high, -1);
  if (known[low] < 0) known[low] = moving_seconds(slices_[low], slices_[high]);
  return known[low];
}

void MoveEstimates::add(GroupId id, std::size_t entry, SyncMethod sync, double sign,
                        RoughStep& sum) const {
  const Group& group = groups_[id];
  const Slices& slices = slices_[entry];
  double slowest = 0;
  for (const Slice& slice : slices.slices) {
    const double takes = seconds(group, slice);
    slowest = std::max(slowest, takes);
    sum.compute[slice.device] += sign * takes;
    sum.bytes[slice.device] +=
        sign * (group.state_bytes + group.activation_bytes * length(slices.part[slice.device]));
  }
  sum.chain += sign * slowest;
  if (slices.slices.size() < 2) {
    sum.lone += sign * (group.end - group.begin);
    return;
  }
  if (group.parameter_bytes == 0) return;
  double synced = 0;
  if (sync == SyncMethod::kAllReduce) {
    synced = group.parameters * slices.sync->reduce_fixed +
             group.parameter_bytes * slices.sync->reduce_per_byte;
    sum.reduces += sign * synced;
  } else {
    synced = group.parameters * slices.sync->server_fixed +
             group.parameter_bytes * slices.sync->server_per_byte +
             group.alone_bytes * slices.sync->alone_per_byte;
    sum.servers += sign * synced;
  }
  sum.late_sync += sign * synced * (1 - group.begin);
}

void MoveEstimates::begin(const Incumbent& from) {
  from_ = &from;
  const Candidate& candidate = from.candidate;
  slices_.clear();
  for (const Replicas& replicas : candidate.shares) add_slices(replicas);
  before_.clear();
  for (ShareId share : candidate.share_of) before_.push_back(share.value());
  after_ = before_;
  incumbent_ = {};
  incumbent_.compute.assign(problem_.cluster->device_count(), 0);
  incumbent_.bytes.assign(problem_.cluster->device_count(), 0);
  for (GroupId group : id_range<GroupId>(groups_.size())) {
    add(group, before_[group], candidate.sync_of[group], 1, incumbent_);
    for (const auto& [other, bytes] : groups_[group].neighbours) {
      if (other < group) continue;
      incumbent_.moving += bytes * seconds_per_byte(before_[group], before_[other]);
    }
    if (group.value() == 0) continue;
    const GroupId left(group.value() - 1);
    incumbent_.seams +=
        before_[left] != before_[group] || candidate.sync_of[left] != candidate.sync_of[group];
  }
}

RoughChange MoveEstimates::change(const Move& move) {
  const Candidate& candidate = from_->candidate;
  const std::size_t known = candidate.shares.size();
  RoughChange made;
  made.change.compute.assign(problem_.cluster->device_count(), 0);
  made.change.bytes.assign(problem_.cluster->device_count(), 0);

  // As apply() does: pairs first, each for the groups that had the first of it, then the groups.
  // Equal replicas are one entry, so that groups with them have no seam between them.
  std::vector<Replicas> added;
  const auto entry_of = [&](const Replicas& replicas) {
    const auto at = std::ranges::find(candidate.shares, replicas);
    if (at != candidate.shares.end()) {
      return static_cast<std::size_t>(at - candidate.shares.begin());
    }
    const auto again = std::ranges::find(added, replicas);
    if (again != added.end()) return known + static_cast<std::size_t>(again - added.begin());
    added.push_back(replicas);
    return add_slices(replicas);
  };
  for (const auto& [from, to] : move.reweigh) {
    const auto at = std::ranges::find(candidate.shares, from);
    if (at == candidate.shares.end()) continue;
    const auto entry = static_cast<std::size_t>(at - candidate.shares.begin());
    const std::size_t target = entry_of(to);
    for (GroupId group : id_range<GroupId>(groups_.size())) {
      if (before_[group] == entry) after_[group] = target;
    }
  }
  if (move.replicas) {
    const std::size_t target = entry_of(*move.replicas);
    for (GroupId group : move.groups) after_[group] = target;
  }
  std::vector<bool> named(groups_.size(), false);
  if (move.sync || move.recompute) {
    for (GroupId group : move.groups) named[group.value()] = true;
  }
  const auto sync_after = [&](GroupId group) {
    return move.sync && named[group.value()] ? *move.sync : candidate.sync_of[group];
  };
  for (GroupId group : id_range<GroupId>(groups_.size())) {
    const bool again =
        move.recompute && named[group.value()] && candidate.recompute_of[group] != *move.recompute;
    if (after_[group] != before_[group] || sync_after(group) != candidate.sync_of[group] || again) {
      made.groups.push_back(group);
    }
  }
  const auto seam = [&](GroupId left, GroupId right) {
    const double was =
        before_[left] != before_[right] || candidate.sync_of[left] != candidate.sync_of[right];
    const double is = after_[left] != after_[right] || sync_after(left) != sync_after(right);
    return is - was;
  };
  const auto changed = [&](GroupId group) {
    return std::ranges::binary_search(made.groups, group);
  };
  const auto devices = static_cast<double>(problem_.cluster->device_count());
  for (GroupId id : made.groups) {
    const Group& group = groups_[id];
    const Slices& from = slices_[before_[id]];
    const Slices& to = slices_[after_[id]];
    add(id, before_[id], candidate.sync_of[id], -1, made.change);
    add(id, after_[id], sync_after(id), 1, made.change);
    for (const auto& [other, bytes] : group.neighbours) {
      if (other < id && changed(other)) continue;
      made.change.moving += bytes * (seconds_per_byte(after_[id], after_[other]) -
                                     seconds_per_byte(before_[id], before_[other]));
    }
    if (id.value() > 0) made.change.seams += seam(GroupId(id.value() - 1), id);
    const GroupId right(id.value() + 1);
    if (right.value() < groups_.size() && !changed(right)) made.change.seams += seam(id, right);

    const double time = group.end - group.begin;
    made.time += time;
    made.middle += time * (group.begin + group.end) / 2;
    made.parameters += group.parameter_bytes;
    made.activations += group.activation_bytes;
    made.devices_before += static_cast<double>(from.slices.size()) / devices;
    made.devices_after += static_cast<double>(to.slices.size()) / devices;
    if (after_[id] != before_[id]) {
      double kept = 0;
      for (const Slice& slice : to.slices) {
        kept += std::min(length(from.part[slice.device]), length(to.part[slice.device]));
      }
      made.moved_samples += time * (1 - kept);
    }
    if (to.slices.size() > 1) {
      const bool was_alone = from.slices.size() < 2;
      const SyncMethod was = candidate.sync_of[id], is = sync_after(id);
      if (was_alone || was != is) {
        (is == SyncMethod::kAllReduce ? made.to_reduce : made.to_server) += group.parameter_bytes;
      }
    }
  }
  if (!made.groups.empty()) {
    const auto count = static_cast<double>(made.groups.size());
    made.middle /= std::max(1e-12, made.time);
    made.devices_before /= count;
    made.devices_after /= count;
    made.parameters /= std::max(1.0, parameter_bytes_);
    made.activations /= std::max(1.0, activation_bytes_);
    made.to_reduce /= std::max(1.0, parameter_bytes_);
    made.to_server /= std::max(1.0, parameter_bytes_);
    const GroupId first = made.groups.front(), last = made.groups.back();
    made.like_left = first.value() > 0 && after_[GroupId(first.value() - 1)] == after_[first];
    made.like_right =
        last.value() + 1 < groups_.size() && after_[GroupId(last.value() + 1)] == after_[last];
  }
  for (GroupId group : made.groups) after_[group] = before_[group];
  slices_.erase(slices_.begin() + static_cast<std::ptrdiff_t>(known), slices_.end());
  return made;
}

}  // namespace heterog::planner

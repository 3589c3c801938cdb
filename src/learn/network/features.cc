// What the network sees of a problem: one named, versioned table of features (HeteroG §4.1.1).
#include "learn/network/features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "space/summary.h"

namespace heterog::learn {
namespace {

using decide::SyncMethod;
using graph::Phase;
using space::Action;
using space::ActionId;
using space::Placement;
using space::Summary;

struct ActionSubject {
  GroupId group;
  ActionId action;
};

template <class Key>
struct Feature {
  std::string_view name;
  std::string_view unit;
  Normalizer normalizer;
  double (*get)(const Summary&, Key);
};

OpId op_of(const Summary& c, std::uint32_t node) { return c.ops.nodes[node]; }

double seconds_on(const Summary& c, std::uint32_t node, DeviceId d, std::int64_t samples) {
  return to_seconds(
      c.problem.costs.duration(op_of(c, node), c.problem.cluster->device(d).type, samples));
}

template <class Fold>
double fold_devices(const Summary& c, std::uint32_t node, double start, Fold fold) {
  for (DeviceId d : c.problem.cluster->device_ids()) {
    start = fold(start, seconds_on(c, node, d, c.problem.batch));
  }
  return start;
}

double even_slice_seconds(const Summary& c, std::uint32_t node) {
  const auto devices = static_cast<std::int64_t>(c.problem.cluster->device_count());
  const std::int64_t samples = (c.problem.batch + devices - 1) / devices;
  double slowest = 0;
  for (DeviceId d : c.problem.cluster->device_ids()) {
    slowest = std::max(slowest, seconds_on(c, node, d, samples));
  }
  return slowest;
}

bool makes_sum(const Summary& c, std::uint32_t node) {
  for (TensorId output : c.problem.graph->outputs(op_of(c, node))) {
    if (output.valid() && c.problem.splits->rules[output].kind == graph::SplitKind::kSum) {
      return true;
    }
  }
  return false;
}

double in_phase(const Summary& c, std::uint32_t node, Phase phase) {
  return c.problem.graph->op(op_of(c, node)).phase == phase;
}

double ratio(double a, double b) { return b > 0 ? a / b : 0.0; }

constexpr std::array<Feature<std::uint32_t>, 17> kOpFeatures{{
    {"mean_seconds", "s on the whole batch, mean over devices", Normalizer::kSeconds,
     [](const Summary& c, std::uint32_t n) { return c.problem.costs.mean_seconds(op_of(c, n)); }},
    {"least_seconds", "s on the fastest device", Normalizer::kSeconds,
     [](const Summary& c, std::uint32_t n) {
       return fold_devices(c, n, 1e30, [](double a, double b) { return std::min(a, b); });
     }},
    {"most_seconds", "s on the slowest device", Normalizer::kSeconds,
     [](const Summary& c, std::uint32_t n) {
       return fold_devices(c, n, 0, [](double a, double b) { return std::max(a, b); });
     }},
    {"even_slice_seconds", "s of the slowest device's even slice", Normalizer::kSeconds,
     even_slice_seconds},
    {"slice_gain", "slice seconds / whole seconds", Normalizer::kShare,
     [](const Summary& c, std::uint32_t n) {
       return ratio(even_slice_seconds(c, n),
                    fold_devices(c, n, 0, [](double a, double b) { return std::max(a, b); }));
     }},
    {"share_of_step", "share of Σ mean seconds × 10", Normalizer::kShare,
     [](const Summary& c, std::uint32_t n) {
       return 10 * ratio(c.problem.costs.mean_seconds(op_of(c, n)), c.total_seconds);
     }},
    {"bytes_in", "bytes", Normalizer::kBytes,
     [](const Summary& c, std::uint32_t n) { return double(c.ops.bytes_in[n]); }},
    {"bytes_out", "bytes", Normalizer::kBytes,
     [](const Summary& c, std::uint32_t n) { return double(c.ops.bytes_out[n]); }},
    {"parameter_bytes", "bytes of parameters read", Normalizer::kBytes,
     [](const Summary& c, std::uint32_t n) { return double(c.ops.parameter_bytes_in[n]); }},
    {"transfer_seconds", "s to send its outputs, mean over device pairs", Normalizer::kSeconds,
     [](const Summary& c, std::uint32_t n) {
       return c.cluster.mean_latency_seconds +
              double(c.ops.bytes_out[n]) * c.cluster.mean_seconds_per_byte;
     }},
    {"forward", "0/1", Normalizer::kFlag,
     [](const Summary& c, std::uint32_t n) { return in_phase(c, n, Phase::kForward); }},
    {"backward", "0/1", Normalizer::kFlag,
     [](const Summary& c, std::uint32_t n) { return in_phase(c, n, Phase::kBackward); }},
    {"update", "0/1", Normalizer::kFlag,
     [](const Summary& c, std::uint32_t n) { return in_phase(c, n, Phase::kUpdate); }},
    {"sliceable", "0/1", Normalizer::kFlag,
     [](const Summary& c, std::uint32_t n) {
       return double(c.problem.splits->sliceable[op_of(c, n)] != 0);
     }},
    {"partial_sum", "0/1: its slices make partial sums", Normalizer::kFlag,
     [](const Summary& c, std::uint32_t n) { return double(makes_sum(c, n)); }},
    {"readers", "ops", Normalizer::kCount,
     [](const Summary& c, std::uint32_t n) { return double(c.ops.readers[n]); }},
    {"sources", "ops", Normalizer::kCount,
     [](const Summary& c, std::uint32_t n) { return double(c.ops.sources[n]); }},
}};

const space::GroupSummary& totals(const Summary& c, GroupId g) { return c.groups[g]; }
const space::GroupCommunication& sent(const Summary& c, GroupId g) { return c.communication[g]; }

constexpr std::array<Feature<GroupId>, 15> kGroupFeatures{{
    {"ops", "ops", Normalizer::kCount,
     [](const Summary& c, GroupId g) { return double(totals(c, g).ops); }},
    {"mean_seconds", "s on the whole batch, mean over devices", Normalizer::kSeconds,
     [](const Summary& c, GroupId g) { return totals(c, g).seconds; }},
    {"share_of_step", "share of Σ mean seconds × 10", Normalizer::kShare,
     [](const Summary& c, GroupId g) { return 10 * ratio(totals(c, g).seconds, c.total_seconds); }},
    {"forward_share", "share of its time", Normalizer::kShare,
     [](const Summary& c, GroupId g) {
       return ratio(totals(c, g).forward_seconds, totals(c, g).seconds);
     }},
    {"whole_share", "share of its time that cannot be sliced", Normalizer::kShare,
     [](const Summary& c, GroupId g) {
       return ratio(totals(c, g).whole_seconds, totals(c, g).seconds);
     }},
    {"parameter_bytes", "bytes", Normalizer::kBytes,
     [](const Summary& c, GroupId g) { return double(totals(c, g).parameter_bytes); }},
    {"state_share", "share of the model's parameter state", Normalizer::kShare,
     [](const Summary& c, GroupId g) {
       return ratio(double(totals(c, g).state_bytes()), double(c.total_state_bytes));
     }},
    {"activation_bytes", "bytes kept for backward", Normalizer::kBytes,
     [](const Summary& c, GroupId g) { return double(totals(c, g).activation_bytes); }},
    {"bytes_in", "bytes from other groups", Normalizer::kBytes,
     [](const Summary& c, GroupId g) { return double(sent(c, g).bytes_in); }},
    {"bytes_out", "bytes to other groups", Normalizer::kBytes,
     [](const Summary& c, GroupId g) { return double(sent(c, g).bytes_out); }},
    {"transfer_seconds", "s to send what it sends, mean over device pairs", Normalizer::kSeconds,
     [](const Summary& c, GroupId g) {
       return c.cluster.mean_latency_seconds +
              double(sent(c, g).bytes_out) * c.cluster.mean_seconds_per_byte;
     }},
    {"all_reduce_seconds", "s", Normalizer::kSeconds,
     [](const Summary& c, GroupId g) { return sent(c, g).all_reduce_seconds; }},
    {"parameter_server_seconds", "s", Normalizer::kSeconds,
     [](const Summary& c, GroupId g) { return sent(c, g).parameter_server_seconds; }},
    {"time_position", "share of the time before it", Normalizer::kShare,
     [](const Summary& c, GroupId g) { return c.spans.group_time[g][0]; }},
    {"memory_position", "share of the memory before it", Normalizer::kShare,
     [](const Summary& c, GroupId g) { return c.spans.group_memory[g][0]; }},
}};

double mean_model_seconds(const space::ClusterSummary& cluster) {
  double sum = 0;
  for (const space::DeviceSummary& device : cluster.devices) sum += device.model_seconds;
  return sum / static_cast<double>(cluster.devices.size());
}

constexpr std::array<Feature<DeviceId>, 12> kDeviceFeatures{{
    {"model_seconds", "s of the whole model on it", Normalizer::kSeconds,
     [](const Summary& c, DeviceId d) { return c.cluster.devices[d].model_seconds; }},
    {"speed", "of the fastest device's", Normalizer::kShare,
     [](const Summary& c, DeviceId d) {
       return c.cluster.fastest_seconds / c.cluster.devices[d].model_seconds;
     }},
    {"speed_share", "of the cluster's, × devices", Normalizer::kLogRatio,
     [](const Summary& c, DeviceId d) {
       const auto& span = c.spans.device_speed[d];
       return (span[1] - span[0]) * double(c.cluster.devices.size());
     }},
    {"memory", "of the largest device's", Normalizer::kShare,
     [](const Summary& c, DeviceId d) {
       return c.cluster.devices[d].capacity_bytes / c.cluster.largest_capacity;
     }},
    {"model_memory", "whole model's memory / capacity", Normalizer::kLogRatio,
     [](const Summary& c, DeviceId d) {
       return double(c.total_state_bytes + c.total_activation_bytes) /
              c.cluster.devices[d].capacity_bytes;
     }},
    {"state_memory", "whole parameter state / capacity", Normalizer::kShare,
     [](const Summary& c, DeviceId d) {
       return double(c.total_state_bytes) / c.cluster.devices[d].capacity_bytes;
     }},
    {"transfer_slope", "of the cluster's mean", Normalizer::kLogRatio,
     [](const Summary& c, DeviceId d) {
       return ratio(c.cluster.devices[d].seconds_per_byte, c.cluster.mean_seconds_per_byte);
     }},
    {"state_transfer_seconds", "s to send the model's parameter state", Normalizer::kSeconds,
     [](const Summary& c, DeviceId d) {
       return double(c.total_state_bytes) * c.cluster.devices[d].seconds_per_byte;
     }},
    {"machine_mates", "share of the devices that are in its machine", Normalizer::kShare,
     [](const Summary& c, DeviceId d) {
       const auto& machine = c.problem.cluster->machine(c.problem.cluster->device(d).machine);
       return double(machine.devices.size()) / double(c.problem.cluster->device_count());
     }},
    {"devices", "devices of the cluster", Normalizer::kCount,
     [](const Summary& c, DeviceId) { return double(c.problem.cluster->device_count()); }},
    {"speed_position", "share of the cluster's speed before it", Normalizer::kShare,
     [](const Summary& c, DeviceId d) { return c.spans.device_speed[d][0]; }},
    {"heterogeneity", "slowest / mean seconds of the model", Normalizer::kLogRatio,
     [](const Summary& c, DeviceId) {
       return c.cluster.slowest_seconds / mean_model_seconds(c.cluster);
     }},
}};

const Action& action(const Summary& c, ActionSubject s) { return c.actions[s.action]; }
bool is_single(const Summary& c, ActionSubject s) {
  return action(c, s).placement == Placement::kSingle;
}
bool syncs_by(const Summary& c, ActionSubject s, SyncMethod method) {
  return !is_single(c, s) && action(c, s).sync == method;
}
const space::ActionEstimate& estimate(const Summary& c, ActionSubject s) {
  return c.estimates.at(s.group, s.action);
}

// 1 where a group lies inside the device's span of a line, falling off with the distance measured
// in widths of the span: contiguous blocks of the model on devices, in proportion.
double span_match(const std::array<double, 2>& group, const std::array<double, 2>& device) {
  const double middle = (group[0] + group[1]) / 2;
  const double width = std::max(device[1] - device[0], 1e-9);
  const double outside = std::max({device[0] - middle, middle - device[1], 0.0}) / width;
  return std::exp(-outside * outside * 4);
}

constexpr std::array<Feature<ActionSubject>, 23> kActionFeatures{{
    {"single", "0/1", Normalizer::kFlag,
     [](const Summary& c, ActionSubject s) { return double(is_single(c, s)); }},
    {"proportional", "0/1", Normalizer::kFlag,
     [](const Summary& c, ActionSubject s) {
       return double(action(c, s).placement == Placement::kProportional);
     }},
    {"balanced", "0/1", Normalizer::kFlag,
     [](const Summary& c, ActionSubject s) {
       return double(action(c, s).placement == Placement::kBalanced);
     }},
    {"devices_share", "of the cluster's devices that take part", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) { return estimate(c, s).devices_share; }},
    {"parameter_server", "0/1", Normalizer::kFlag,
     [](const Summary& c, ActionSubject s) {
       return double(syncs_by(c, s, SyncMethod::kParameterServer));
     }},
    {"all_reduce", "0/1", Normalizer::kFlag,
     [](const Summary& c, ActionSubject s) {
       return double(syncs_by(c, s, SyncMethod::kAllReduce));
     }},
    {"compute_seconds", "s of the slowest replica", Normalizer::kSeconds,
     [](const Summary& c, ActionSubject s) { return estimate(c, s).compute_seconds; }},
    {"sync_seconds", "s of its gradients' aggregation", Normalizer::kSeconds,
     [](const Summary& c, ActionSubject s) { return estimate(c, s).sync_seconds; }},
    {"boundary_seconds", "s to move its inputs and outputs", Normalizer::kSeconds,
     [](const Summary& c, ActionSubject s) { return estimate(c, s).boundary_seconds; }},
    {"compute_ratio", "of the group's least over actions", Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       return ratio(estimate(c, s).compute_seconds, c.estimates.least_compute_seconds[s.group]);
     }},
    {"total_ratio", "compute + sync, of the group's least over actions", Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       return ratio(estimate(c, s).compute_seconds + estimate(c, s).sync_seconds,
                    c.estimates.least_total_seconds[s.group]);
     }},
    {"sync_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).sync_seconds, c.estimates.even_seconds);
     }},
    {"boundary_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).boundary_seconds, c.estimates.even_seconds);
     }},
    {"compute_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).compute_seconds, c.estimates.even_seconds);
     }},
    {"state_share", "parameter state / capacity of the tightest device", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) { return 4 * estimate(c, s).state_share; }},
    {"activation_share", "kept activations / capacity of the tightest device", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) { return 4 * estimate(c, s).activation_share; }},
    {"model_share", "whole model under this action / capacity", Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) { return estimate(c, s).model_share; }},
    {"model_overlapped", "of the whole model, max of compute and sync over the least action's",
     Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       return ratio(c.estimates.model[s.action].overlapped_seconds(),
                    c.estimates.least_overlapped_seconds);
     }},
    {"model_serial", "of the whole model, compute + sync over the least action's",
     Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       return ratio(c.estimates.model[s.action].serial_seconds(), c.estimates.least_serial_seconds);
     }},
    {"model_sync", "of the whole model, sync over compute", Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       const space::ModelEstimate& model = c.estimates.model[s.action];
       return ratio(model.sync_seconds, model.compute_seconds);
     }},
    {"group_sync", "of the group, sync over compute", Normalizer::kLogRatio,
     [](const Summary& c, ActionSubject s) {
       return ratio(estimate(c, s).sync_seconds, estimate(c, s).compute_seconds);
     }},
    {"memory_match", "nearness of the group to the device's share of memory", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) {
       if (!is_single(c, s)) return 0.0;
       return span_match(c.spans.group_memory[s.group], c.spans.device_memory[action(c, s).device]);
     }},
    {"speed_match", "nearness of the group to the device's share of speed", Normalizer::kShare,
     [](const Summary& c, ActionSubject s) {
       if (!is_single(c, s)) return 0.0;
       return span_match(c.spans.group_time[s.group], c.spans.device_speed[action(c, s).device]);
     }},
}};

template <class Key, std::size_t N>
void append_row(FeatureMatrix& matrix, const std::array<Feature<Key>, N>& table,
                const Summary& summary, Key key) {
  matrix.columns = N;
  ++matrix.rows;
  for (const Feature<Key>& feature : table) {
    matrix.values.push_back(
        static_cast<float>(normalize(feature.normalizer, feature.get(summary, key))));
  }
}

template <class Key, std::size_t N>
void append_info(std::vector<FeatureInfo>& infos, Subject subject,
                 const std::array<Feature<Key>, N>& table) {
  for (const Feature<Key>& feature : table) {
    infos.push_back({subject, feature.name, feature.unit, feature.normalizer});
  }
}

std::int64_t scheme_of(const Action& action) {
  if (action.placement == Placement::kSingle) return 0;
  const auto placement = static_cast<std::int64_t>(action.placement);
  return 2 * placement - (action.sync == SyncMethod::kParameterServer ? 1 : 0);
}

void add_members(const Summary& summary, Features& features) {
  const std::size_t devices = summary.problem.cluster->device_count();
  features.members = {.rows = features.action_count,
                      .columns = static_cast<std::int64_t>(devices),
                      .values = std::vector<float>(summary.actions.size() * devices)};
  for (ActionId id : summary.actions.ids()) {
    features.scheme.push_back(scheme_of(summary.actions[id]));
    const auto& replicas = summary.actions.decision(id).replicas;
    for (const decide::Replica& replica : replicas) {
      features.members.values[id.value() * devices + replica.device.value()] =
          1.0F / static_cast<float>(replicas.size());
    }
  }
}

void add_neighbours(const Summary& summary, Features& features) {
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;  // (target, source)
  for (const space::OpEdge& edge : summary.ops.edges) {
    pairs.emplace(edge.target, edge.source);
    pairs.emplace(edge.source, edge.target);
  }
  for (std::size_t node = 0; node < summary.ops.nodes.size(); ++node) pairs.emplace(node, node);
  for (const auto& [target, source] : pairs) {
    features.edge_target.push_back(target);
    features.edge_source.push_back(source);
  }
}

}  // namespace

std::string_view normalizer_name(Normalizer normalizer) {
  constexpr std::string_view kNames[] = {"share", "flag", "seconds", "bytes", "count", "log-ratio"};
  return kNames[static_cast<int>(normalizer)];
}

double normalize(Normalizer normalizer, double raw) {
  switch (normalizer) {
    case Normalizer::kShare:
      return std::clamp(raw, -4.0, 4.0);
    case Normalizer::kFlag:
      return raw;
    case Normalizer::kSeconds:
      return std::log1p(raw / 1e-6) / 10;
    case Normalizer::kBytes:
      return std::log1p(raw / 1024) / 15;
    case Normalizer::kCount:
      return std::log1p(raw) / 5;
    case Normalizer::kLogRatio:
      return std::clamp(std::log(std::max(raw, 1e-30)) / 3, -4.0, 4.0);
  }
  return 0;
}

std::string_view subject_name(Subject subject) {
  constexpr std::string_view kNames[] = {"op", "group", "device", "action"};
  return kNames[static_cast<int>(subject)];
}

std::vector<FeatureInfo> feature_table() {
  std::vector<FeatureInfo> infos;
  append_info(infos, Subject::kOp, kOpFeatures);
  append_info(infos, Subject::kGroup, kGroupFeatures);
  append_info(infos, Subject::kDevice, kDeviceFeatures);
  append_info(infos, Subject::kAction, kActionFeatures);
  return infos;
}

int feature_count(Subject subject) {
  switch (subject) {
    case Subject::kOp:
      return kOpFeatures.size();
    case Subject::kGroup:
      return kGroupFeatures.size();
    case Subject::kDevice:
      return kDeviceFeatures.size();
    case Subject::kAction:
      return kActionFeatures.size();
  }
  return 0;
}

Features make_features(const cost::Problem& problem, space::ActionTable table) {
  return make_features(Summary(problem, table));
}

Features make_features(const Summary& summary) {
  const cost::Problem& problem = summary.problem;
  Features features;
  features.action_count = static_cast<std::int64_t>(summary.actions.size());
  add_members(summary, features);
  for (std::uint32_t node = 0; node < summary.ops.nodes.size(); ++node) {
    append_row(features.ops, kOpFeatures, summary, node);
    features.group_of_op.push_back(problem.grouping.group_of[summary.ops.nodes[node]].value());
  }
  for (DeviceId d : problem.cluster->device_ids()) {
    append_row(features.devices, kDeviceFeatures, summary, d);
  }
  for (GroupId group : id_range<GroupId>(summary.groups.size())) {
    append_row(features.groups, kGroupFeatures, summary, group);
    for (ActionId action : summary.actions.ids()) {
      append_row(features.actions, kActionFeatures, summary, ActionSubject{group, action});
      features.allowed.push_back(summary.estimates.at(group, action).state_share <= 1.0);
    }
    // A group that fits nowhere keeps every action: the simulator will say how much is missing.
    const auto row = features.allowed.end() - features.action_count;
    if (std::find(row, features.allowed.end(), 1) == features.allowed.end()) {
      std::fill(row, features.allowed.end(), 1);
    }
  }
  add_neighbours(summary, features);
  return features;
}

}  // namespace heterog::learn

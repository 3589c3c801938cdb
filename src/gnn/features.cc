// What the network sees of a problem: one named, versioned table of features (HeteroG §4.1.1).
#include "gnn/features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

namespace heterog::gnn {
namespace {

using graph::Phase;

struct ActionSubject {
  GroupId group;
  int action;
};

template <class Key>
struct Feature {
  std::string_view name;
  std::string_view unit;
  Normalizer normalizer;
  double (*get)(const FeatureContext&, Key);
};

OpId op_of(const FeatureContext& c, std::uint32_t node) { return c.nodes[node]; }

double seconds_on(const FeatureContext& c, std::uint32_t node, DeviceId d, std::int64_t samples) {
  return to_seconds(
      c.problem.costs.duration(op_of(c, node), c.problem.cluster->device(d).type, samples));
}

template <class Fold>
double fold_devices(const FeatureContext& c, std::uint32_t node, double start, Fold fold) {
  for (DeviceId d : c.problem.cluster->device_ids()) {
    start = fold(start, seconds_on(c, node, d, c.problem.batch));
  }
  return start;
}

double even_slice_seconds(const FeatureContext& c, std::uint32_t node) {
  const auto devices = static_cast<std::int64_t>(c.problem.cluster->device_count());
  const std::int64_t samples = (c.problem.batch + devices - 1) / devices;
  double slowest = 0;
  for (DeviceId d : c.problem.cluster->device_ids()) {
    slowest = std::max(slowest, seconds_on(c, node, d, samples));
  }
  return slowest;
}

bool makes_sum(const FeatureContext& c, std::uint32_t node) {
  for (TensorId output : c.problem.graph->outputs(op_of(c, node))) {
    if (output.valid() && c.problem.splits->rules[output].kind == graph::SplitKind::kSum) {
      return true;
    }
  }
  return false;
}

double in_phase(const FeatureContext& c, std::uint32_t node, Phase phase) {
  return c.problem.graph->op(op_of(c, node)).phase == phase;
}

double ratio(double a, double b) { return b > 0 ? a / b : 0.0; }

constexpr std::array<Feature<std::uint32_t>, 17> kOpFeatures{{
    {"mean_seconds", "s on the whole batch, mean over devices", Normalizer::kSeconds,
     [](const FeatureContext& c, std::uint32_t n) {
       return c.problem.costs.mean_seconds(op_of(c, n));
     }},
    {"least_seconds", "s on the fastest device", Normalizer::kSeconds,
     [](const FeatureContext& c, std::uint32_t n) {
       return fold_devices(c, n, 1e30, [](double a, double b) { return std::min(a, b); });
     }},
    {"most_seconds", "s on the slowest device", Normalizer::kSeconds,
     [](const FeatureContext& c, std::uint32_t n) {
       return fold_devices(c, n, 0, [](double a, double b) { return std::max(a, b); });
     }},
    {"even_slice_seconds", "s of the slowest device's even slice", Normalizer::kSeconds,
     even_slice_seconds},
    {"slice_gain", "slice seconds / whole seconds", Normalizer::kShare,
     [](const FeatureContext& c, std::uint32_t n) {
       return ratio(even_slice_seconds(c, n),
                    fold_devices(c, n, 0, [](double a, double b) { return std::max(a, b); }));
     }},
    {"share_of_step", "share of Σ mean seconds × 10", Normalizer::kShare,
     [](const FeatureContext& c, std::uint32_t n) {
       return 10 * ratio(c.problem.costs.mean_seconds(op_of(c, n)), c.total_seconds);
     }},
    {"bytes_in", "bytes", Normalizer::kBytes,
     [](const FeatureContext& c, std::uint32_t n) { return double(c.bytes_in[n]); }},
    {"bytes_out", "bytes", Normalizer::kBytes,
     [](const FeatureContext& c, std::uint32_t n) { return double(c.bytes_out[n]); }},
    {"parameter_bytes", "bytes of parameters read", Normalizer::kBytes,
     [](const FeatureContext& c, std::uint32_t n) { return double(c.parameter_bytes_in[n]); }},
    {"transfer_seconds", "s to send its outputs, mean over device pairs", Normalizer::kSeconds,
     [](const FeatureContext& c, std::uint32_t n) {
       return c.mean_latency_seconds + double(c.bytes_out[n]) * c.mean_seconds_per_byte;
     }},
    {"forward", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, std::uint32_t n) { return in_phase(c, n, Phase::kForward); }},
    {"backward", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, std::uint32_t n) { return in_phase(c, n, Phase::kBackward); }},
    {"update", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, std::uint32_t n) { return in_phase(c, n, Phase::kUpdate); }},
    {"sliceable", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, std::uint32_t n) {
       return double(c.problem.splits->sliceable[op_of(c, n)] != 0);
     }},
    {"partial_sum", "0/1: its slices make partial sums", Normalizer::kFlag,
     [](const FeatureContext& c, std::uint32_t n) { return double(makes_sum(c, n)); }},
    {"readers", "ops", Normalizer::kCount,
     [](const FeatureContext& c, std::uint32_t n) { return double(c.readers[n]); }},
    {"sources", "ops", Normalizer::kCount,
     [](const FeatureContext& c, std::uint32_t n) { return double(c.sources[n]); }},
}};

const GroupTotals& totals(const FeatureContext& c, GroupId g) { return c.groups[g.value()]; }

constexpr std::array<Feature<GroupId>, 15> kGroupFeatures{{
    {"ops", "ops", Normalizer::kCount,
     [](const FeatureContext& c, GroupId g) { return double(totals(c, g).ops); }},
    {"mean_seconds", "s on the whole batch, mean over devices", Normalizer::kSeconds,
     [](const FeatureContext& c, GroupId g) { return totals(c, g).mean_seconds; }},
    {"share_of_step", "share of Σ mean seconds × 10", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) {
       return 10 * ratio(totals(c, g).mean_seconds, c.total_seconds);
     }},
    {"forward_share", "share of its time", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) {
       return ratio(totals(c, g).forward_seconds, totals(c, g).mean_seconds);
     }},
    {"whole_share", "share of its time that cannot be sliced", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) {
       return ratio(totals(c, g).whole_seconds, totals(c, g).mean_seconds);
     }},
    {"parameter_bytes", "bytes", Normalizer::kBytes,
     [](const FeatureContext& c, GroupId g) { return double(totals(c, g).parameter_bytes); }},
    {"state_share", "share of the model's parameter state", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) {
       return ratio(double(totals(c, g).state_bytes), double(c.total_state_bytes));
     }},
    {"activation_bytes", "bytes kept for backward", Normalizer::kBytes,
     [](const FeatureContext& c, GroupId g) { return double(totals(c, g).activation_bytes); }},
    {"bytes_in", "bytes from other groups", Normalizer::kBytes,
     [](const FeatureContext& c, GroupId g) { return double(totals(c, g).bytes_in); }},
    {"bytes_out", "bytes to other groups", Normalizer::kBytes,
     [](const FeatureContext& c, GroupId g) { return double(totals(c, g).bytes_out); }},
    {"transfer_seconds", "s to send what it sends, mean over device pairs", Normalizer::kSeconds,
     [](const FeatureContext& c, GroupId g) {
       return c.mean_latency_seconds + double(totals(c, g).bytes_out) * c.mean_seconds_per_byte;
     }},
    {"all_reduce_seconds", "s", Normalizer::kSeconds,
     [](const FeatureContext& c, GroupId g) { return totals(c, g).all_reduce_seconds; }},
    {"parameter_server_seconds", "s", Normalizer::kSeconds,
     [](const FeatureContext& c, GroupId g) { return totals(c, g).parameter_server_seconds; }},
    {"time_position", "share of the time before it", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) { return c.group_time_span[g.value()][0]; }},
    {"memory_position", "share of the memory before it", Normalizer::kShare,
     [](const FeatureContext& c, GroupId g) { return c.group_memory_span[g.value()][0]; }},
}};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

constexpr std::array<Feature<DeviceId>, 12> kDeviceFeatures{{
    {"model_seconds", "s of the whole model on it", Normalizer::kSeconds,
     [](const FeatureContext& c, DeviceId d) { return c.device_seconds[d.value()]; }},
    {"speed", "of the fastest device's", Normalizer::kShare,
     [](const FeatureContext& c, DeviceId d) {
       return c.fastest_seconds / c.device_seconds[d.value()];
     }},
    {"speed_share", "of the cluster's, × devices", Normalizer::kLogRatio,
     [](const FeatureContext& c, DeviceId d) {
       const auto& span = c.device_speed_span[d.value()];
       return (span[1] - span[0]) * double(c.device_seconds.size());
     }},
    {"memory", "of the largest device's", Normalizer::kShare,
     [](const FeatureContext& c, DeviceId d) {
       return c.device_capacity[d.value()] / c.largest_capacity;
     }},
    {"model_memory", "whole model's memory / capacity", Normalizer::kLogRatio,
     [](const FeatureContext& c, DeviceId d) {
       return double(c.total_state_bytes + c.total_activation_bytes) / c.device_capacity[d.value()];
     }},
    {"state_memory", "whole parameter state / capacity", Normalizer::kShare,
     [](const FeatureContext& c, DeviceId d) {
       return double(c.total_state_bytes) / c.device_capacity[d.value()];
     }},
    {"transfer_slope", "of the cluster's mean", Normalizer::kLogRatio,
     [](const FeatureContext& c, DeviceId d) {
       return ratio(c.device_seconds_per_byte[d.value()], c.mean_seconds_per_byte);
     }},
    {"state_transfer_seconds", "s to send the model's parameter state", Normalizer::kSeconds,
     [](const FeatureContext& c, DeviceId d) {
       return double(c.total_state_bytes) * c.device_seconds_per_byte[d.value()];
     }},
    {"machine_mates", "share of the devices that are in its machine", Normalizer::kShare,
     [](const FeatureContext& c, DeviceId d) {
       const auto& machine = c.problem.cluster->machine(c.problem.cluster->device(d).machine);
       return double(machine.devices.size()) / double(c.problem.cluster->device_count());
     }},
    {"devices", "devices of the cluster", Normalizer::kCount,
     [](const FeatureContext& c, DeviceId) { return double(c.problem.cluster->device_count()); }},
    {"speed_position", "share of the cluster's speed before it", Normalizer::kShare,
     [](const FeatureContext& c, DeviceId d) { return c.device_speed_span[d.value()][0]; }},
    {"heterogeneity", "slowest / mean seconds of the model", Normalizer::kLogRatio,
     [](const FeatureContext& c, DeviceId) {
       return c.slowest_seconds / mean_of(c.device_seconds);
     }},
}};

bool is_single(const FeatureContext& c, ActionSubject s) {
  return s.action < c.action_count - kReplicatedActions;
}
int scheme(const FeatureContext& c, ActionSubject s) {  // 0 … 3, or negative for a single device
  return s.action - (c.action_count - kReplicatedActions);
}
const ActionEstimate& estimate(const FeatureContext& c, ActionSubject s) {
  return c.action(s.group, s.action);
}

// 1 where a group lies inside the device's span of a line, falling off with the distance measured
// in widths of the span: contiguous blocks of the model on devices, in proportion.
double span_match(const std::array<double, 2>& group, const std::array<double, 2>& device) {
  const double middle = (group[0] + group[1]) / 2;
  const double width = std::max(device[1] - device[0], 1e-9);
  const double outside = std::max({device[0] - middle, middle - device[1], 0.0}) / width;
  return std::exp(-outside * outside * 4);
}

constexpr std::array<Feature<ActionSubject>, 17> kActionFeatures{{
    {"single", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, ActionSubject s) { return double(is_single(c, s)); }},
    {"proportional", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, ActionSubject s) { return double(scheme(c, s) >= 2); }},
    {"parameter_server", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, ActionSubject s) {
       return double(scheme(c, s) == 0 || scheme(c, s) == 2);
     }},
    {"all_reduce", "0/1", Normalizer::kFlag,
     [](const FeatureContext& c, ActionSubject s) {
       return double(scheme(c, s) == 1 || scheme(c, s) == 3);
     }},
    {"compute_seconds", "s of the slowest replica", Normalizer::kSeconds,
     [](const FeatureContext& c, ActionSubject s) { return estimate(c, s).compute_seconds; }},
    {"sync_seconds", "s of its gradients' aggregation", Normalizer::kSeconds,
     [](const FeatureContext& c, ActionSubject s) { return estimate(c, s).sync_seconds; }},
    {"boundary_seconds", "s to move its inputs and outputs", Normalizer::kSeconds,
     [](const FeatureContext& c, ActionSubject s) { return estimate(c, s).boundary_seconds; }},
    {"compute_ratio", "of the group's least over actions", Normalizer::kLogRatio,
     [](const FeatureContext& c, ActionSubject s) {
       return ratio(estimate(c, s).compute_seconds, c.least_compute_seconds[s.group.value()]);
     }},
    {"total_ratio", "compute + sync, of the group's least over actions", Normalizer::kLogRatio,
     [](const FeatureContext& c, ActionSubject s) {
       return ratio(estimate(c, s).compute_seconds + estimate(c, s).sync_seconds,
                    c.least_total_seconds[s.group.value()]);
     }},
    {"sync_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).sync_seconds, c.total_even_seconds);
     }},
    {"boundary_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).boundary_seconds, c.total_even_seconds);
     }},
    {"compute_share", "of the model's even compute × 4", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) {
       return 4 * ratio(estimate(c, s).compute_seconds, c.total_even_seconds);
     }},
    {"state_share", "parameter state / capacity of the tightest device", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) { return 4 * estimate(c, s).state_share; }},
    {"activation_share", "kept activations / capacity of the tightest device", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) { return 4 * estimate(c, s).activation_share; }},
    {"model_share", "whole model under this action / capacity", Normalizer::kLogRatio,
     [](const FeatureContext& c, ActionSubject s) { return estimate(c, s).model_share; }},
    {"memory_match", "nearness of the group to the device's share of memory", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) {
       if (!is_single(c, s)) return 0.0;
       return span_match(c.group_memory_span[s.group.value()], c.device_memory_span[s.action]);
     }},
    {"speed_match", "nearness of the group to the device's share of speed", Normalizer::kShare,
     [](const FeatureContext& c, ActionSubject s) {
       if (!is_single(c, s)) return 0.0;
       return span_match(c.group_time_span[s.group.value()], c.device_speed_span[s.action]);
     }},
}};

template <class Key, std::size_t N>
void append_row(FeatureMatrix& matrix, const std::array<Feature<Key>, N>& table,
                const FeatureContext& context, Key key) {
  matrix.columns = N;
  ++matrix.rows;
  for (const Feature<Key>& feature : table) {
    matrix.values.push_back(
        static_cast<float>(normalize(feature.normalizer, feature.get(context, key))));
  }
}

template <class Key, std::size_t N>
void append_info(std::vector<FeatureInfo>& infos, Subject subject,
                 const std::array<Feature<Key>, N>& table) {
  for (const Feature<Key>& feature : table) {
    infos.push_back({subject, feature.name, feature.unit, feature.normalizer});
  }
}

void add_neighbours(const FeatureContext& context, Features& features) {
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;  // (target, source)
  for (const OpEdge& edge : context.edges) {
    pairs.emplace(edge.target, edge.source);
    pairs.emplace(edge.source, edge.target);
  }
  for (std::size_t node = 0; node < context.nodes.size(); ++node) pairs.emplace(node, node);
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

Features make_features(const cost::Problem& problem) {
  const FeatureContext context(problem);
  Features features;
  features.action_count = context.action_count;
  for (std::uint32_t node = 0; node < context.nodes.size(); ++node) {
    append_row(features.ops, kOpFeatures, context, node);
    features.group_of_op.push_back(problem.grouping.group_of[context.nodes[node]].value());
  }
  for (DeviceId d : problem.cluster->device_ids()) {
    append_row(features.devices, kDeviceFeatures, context, d);
  }
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    append_row(features.groups, kGroupFeatures, context, GroupId(g));
    for (int a = 0; a < context.action_count; ++a) {
      append_row(features.actions, kActionFeatures, context, ActionSubject{GroupId(g), a});
      features.allowed.push_back(context.action(GroupId(g), a).state_share <= 1.0);
    }
    // A group that fits nowhere keeps every action: the simulator will say how much is missing.
    const auto row = features.allowed.end() - context.action_count;
    if (std::find(row, features.allowed.end(), 1) == features.allowed.end()) {
      std::fill(row, features.allowed.end(), 1);
    }
  }
  add_neighbours(context, features);
  return features;
}

}  // namespace heterog::gnn

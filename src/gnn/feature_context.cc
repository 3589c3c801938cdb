// Sums over a problem that the feature table reads: folded op graph, group totals, estimates.
#include "gnn/feature_context.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "cost/collective.h"

namespace heterog::gnn {
namespace {

using graph::Phase;
using graph::TensorRole;

// Latency and slope of a transfer: links carry it at once, the slowest decides (decision 7).
double seconds_per_byte(const cluster::Cluster& cluster, DeviceId a, DeviceId b) {
  const cluster::Route& route = cluster.route(a, b);
  double bandwidth = std::numeric_limits<double>::infinity();
  for (LinkId link : route.links) {
    bandwidth = std::min(bandwidth, cluster.link(link).bytes_per_second);
  }
  if (route.cap_bytes_per_second > 0) bandwidth = std::min(bandwidth, route.cap_bytes_per_second);
  return 1.0 / bandwidth;
}

void describe_cluster(FeatureContext& c) {
  const cluster::Cluster& cluster = *c.problem.cluster;
  const std::size_t devices = cluster.device_count();
  for (DeviceId d : cluster.device_ids()) {
    double sum = 0;
    for (DeviceId e : cluster.device_ids()) {
      if (d == e) continue;
      // Both directions, so that a device with a slow uplink shows it.
      sum += (seconds_per_byte(cluster, d, e) + seconds_per_byte(cluster, e, d)) / 2;
      c.mean_latency_seconds += to_seconds(cluster.route(d, e).latency);
    }
    c.device_seconds_per_byte.push_back(devices > 1 ? sum / (devices - 1) : 0.0);
    c.mean_seconds_per_byte += c.device_seconds_per_byte.back() / devices;
    c.device_seconds.push_back(1.0 / c.problem.costs.model_speed(cluster.device(d).type));
    const double capacity = static_cast<double>(cluster.device(d).memory_bytes) -
                            static_cast<double>(cluster.type_of(d).reserve_bytes);
    c.device_capacity.push_back(std::max(capacity, 1.0));
  }
  if (devices > 1) c.mean_latency_seconds /= devices * (devices - 1);
  c.fastest_seconds = *std::ranges::min_element(c.device_seconds);
  c.slowest_seconds = *std::ranges::max_element(c.device_seconds);
  c.largest_capacity = *std::ranges::max_element(c.device_capacity);
}

void fold_aliases(FeatureContext& c) {
  const graph::ModelGraph& graph = *c.problem.graph;
  c.node_of.assign(graph.op_count(), 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    c.node_of[op.value()] = static_cast<std::uint32_t>(c.nodes.size());
    c.nodes.push_back(op);
  }
  const std::int64_t batch = c.problem.batch;
  c.bytes_in.assign(c.nodes.size(), 0);
  c.bytes_out.assign(c.nodes.size(), 0);
  c.parameter_bytes_in.assign(c.nodes.size(), 0);
  c.readers.assign(c.nodes.size(), 0);
  c.sources.assign(c.nodes.size(), 0);
  for (std::uint32_t node = 0; node < c.nodes.size(); ++node) {
    std::map<std::uint32_t, Bytes> sources;
    std::set<TensorId> seen;
    for (TensorId input : graph.inputs(c.nodes[node])) {
      if (!seen.insert(input).second) continue;
      const TensorId root = graph.root(input);
      const Bytes bytes = graph.bytes(input, batch);
      c.bytes_in[node] += bytes;
      if (graph.tensor(root).role == TensorRole::kParameter) c.parameter_bytes_in[node] += bytes;
      const OpId producer = graph.tensor(root).producer;
      if (producer.valid() && !graph.op(producer).alias) {
        sources[c.node_of[producer.value()]] += bytes;
      }
    }
    for (TensorId output : graph.outputs(c.nodes[node])) {
      if (output.valid()) c.bytes_out[node] += graph.bytes(output, batch);
    }
    for (const auto& [source, bytes] : sources) {
      c.edges.push_back({source, node, bytes});
      ++c.readers[source];
      ++c.sources[node];
    }
  }
  for (OpId op : graph.op_ids()) {
    if (!graph.op(op).alias) continue;
    const auto outputs = graph.outputs(op);
    if (outputs.empty() || !outputs[0].valid()) continue;
    const OpId producer = graph.tensor(graph.root(outputs[0])).producer;
    if (producer.valid() && !graph.op(producer).alias) {
      c.node_of[op.value()] = c.node_of[producer.value()];
    }
  }
}

// Bytes made by a forward op that some backward op reads, aliases looked through.
Bytes kept_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t batch,
                 const std::vector<std::uint8_t>& read_backward) {
  Bytes bytes = 0;
  for (TensorId output : graph.outputs(op)) {
    if (output.valid() && read_backward[output.value()]) bytes += graph.bytes(output, batch);
  }
  return bytes;
}

// Time to push `bytes` from every other device to one server and pull them back, one after another
// through the server's links; the best server (decision 5 spreads servers, so this is an upper
// end).
double parameter_server_seconds(const cluster::Cluster& cluster, Bytes bytes) {
  if (bytes == 0 || cluster.device_count() < 2) return 0.0;
  double best = std::numeric_limits<double>::infinity();
  for (DeviceId server : cluster.device_ids()) {
    double sum = 0;
    for (DeviceId d : cluster.device_ids()) {
      if (d == server) continue;
      sum += (seconds_per_byte(cluster, d, server) + seconds_per_byte(cluster, server, d)) *
             static_cast<double>(bytes);
    }
    best = std::min(best, sum);
  }
  return best;
}

void add_parameters(FeatureContext& c) {
  const graph::ModelGraph& graph = *c.problem.graph;
  const cluster::Cluster& cluster = *c.problem.cluster;
  const std::int64_t batch = c.problem.batch;
  std::vector<DeviceId> devices;
  for (DeviceId d : cluster.device_ids()) devices.push_back(d);
  std::vector<Bytes> optimizer_bytes(graph.tensor_count(), 0);
  for (TensorId t : graph.tensor_ids()) {
    const graph::Tensor& tensor = graph.tensor(t);
    if (tensor.role == TensorRole::kOptimizerState && tensor.of.valid()) {
      optimizer_bytes[tensor.of.value()] += graph.bytes(t, batch);
    }
  }
  std::map<Bytes, std::array<double, 2>> sync_of_size;  // parameters of one size cost the same
  for (TensorId parameter : graph.parameters()) {
    if (graph.consumers(parameter).empty()) continue;
    const GroupId group = c.problem.grouping.group_of[graph.consumers(parameter)[0]];
    GroupTotals& totals = c.groups[group.value()];
    const Bytes bytes = graph.bytes(parameter, batch);
    totals.parameter_bytes += bytes;
    totals.state_bytes += 2 * bytes + optimizer_bytes[parameter.value()];
    if (devices.size() < 2 || bytes == 0) continue;
    auto [it, is_new] = sync_of_size.try_emplace(bytes);
    if (is_new) {
      it->second = {to_seconds(cost::all_reduce_cost(cluster, devices, bytes).duration),
                    parameter_server_seconds(cluster, bytes)};
    }
    totals.all_reduce_seconds += it->second[0];
    totals.parameter_server_seconds += it->second[1];
  }
}

void total_groups(FeatureContext& c) {
  const graph::ModelGraph& graph = *c.problem.graph;
  const std::int64_t batch = c.problem.batch;
  c.groups.assign(c.problem.grouping.count(), {});
  std::vector<std::uint8_t> read_backward(graph.tensor_count(), 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kBackward) continue;
    for (TensorId input : graph.inputs(op)) read_backward[graph.root(input).value()] = 1;
  }
  for (OpId op : c.nodes) {
    GroupTotals& totals = c.groups[c.problem.grouping.group_of[op].value()];
    const double seconds = c.problem.costs.mean_seconds(op);
    ++totals.ops;
    totals.mean_seconds += seconds;
    if (!c.problem.splits->sliceable[op]) totals.whole_seconds += seconds;
    if (graph.op(op).phase != Phase::kForward) continue;
    totals.forward_seconds += seconds;
    totals.activation_bytes += kept_bytes(graph, op, batch, read_backward);
  }
  for (const OpEdge& edge : c.edges) {
    const GroupId source = c.problem.grouping.group_of[c.nodes[edge.source]];
    const GroupId target = c.problem.grouping.group_of[c.nodes[edge.target]];
    if (source == target) continue;
    c.groups[source.value()].bytes_out += edge.bytes;
    c.groups[target.value()].bytes_in += edge.bytes;
  }
  add_parameters(c);
  for (const GroupTotals& totals : c.groups) {
    c.total_seconds += totals.mean_seconds;
    c.total_state_bytes += totals.state_bytes;
    c.total_activation_bytes += totals.activation_bytes;
  }
}

// Seconds of every op of a group on `samples` samples; an op that cannot be sliced takes the batch.
double group_seconds(const FeatureContext& c, GroupId group, DeviceTypeId type,
                     std::int64_t samples) {
  Nanoseconds sum = 0;
  for (OpId op : c.problem.grouping.members[group]) {
    if (c.problem.graph->op(op).alias) continue;
    const bool sliced = c.problem.splits->sliceable[op];
    sum += c.problem.costs.duration(op, type, sliced ? samples : c.problem.batch);
  }
  return to_seconds(sum);
}

// Samples of each device under even (all weights 1) or proportional replication.
std::vector<std::int64_t> slice_sizes(const FeatureContext& c, const std::vector<int>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> sizes;
  for (int weight : weights) {
    sizes.push_back(static_cast<std::int64_t>(
        std::ceil(static_cast<double>(c.problem.batch) * weight / total)));
  }
  return sizes;
}

struct Replication {
  std::vector<std::int64_t> samples;  // by device
  double activation_per_byte = 0;     // Σ-free share: worst over devices of (slice/batch)/capacity
  double state_per_byte = 0;          // worst over devices of 1/capacity
};

Replication replication(const FeatureContext& c, const std::vector<int>& weights) {
  Replication r{.samples = slice_sizes(c, weights)};
  for (std::size_t d = 0; d < r.samples.size(); ++d) {
    const double share = static_cast<double>(r.samples[d]) / static_cast<double>(c.problem.batch);
    r.activation_per_byte = std::max(r.activation_per_byte, share / c.device_capacity[d]);
    r.state_per_byte = std::max(r.state_per_byte, 1.0 / c.device_capacity[d]);
  }
  return r;
}

double replicated_seconds(const FeatureContext& c, GroupId group, const Replication& r) {
  std::map<std::pair<DeviceTypeId, std::int64_t>, double> known;  // few types, few slice sizes
  double slowest = 0;
  for (DeviceId d : c.problem.cluster->device_ids()) {
    const DeviceTypeId type = c.problem.cluster->device(d).type;
    auto [it, is_new] = known.try_emplace({type, r.samples[d.value()]}, 0.0);
    if (is_new) it->second = group_seconds(c, group, type, r.samples[d.value()]);
    slowest = std::max(slowest, it->second);
  }
  return slowest;
}

void estimate_actions(FeatureContext& c) {
  const int devices = static_cast<int>(c.problem.cluster->device_count());
  c.action_count = devices + kReplicatedActions;
  const Replication even = replication(c, std::vector<int>(devices, 1));
  const Replication proportional = replication(c, c.problem.proportional);
  const double state = static_cast<double>(c.total_state_bytes);
  const double activation = static_cast<double>(c.total_activation_bytes);
  for (std::size_t g = 0; g < c.groups.size(); ++g) {
    const GroupId group(g);
    const GroupTotals& totals = c.groups[g];
    const double boundary = static_cast<double>(totals.bytes_in + totals.bytes_out);
    IdVector<DeviceTypeId, double> whole(c.problem.cluster->type_count(), -1.0);
    for (DeviceId d : c.problem.cluster->device_ids()) {
      double& seconds = whole[c.problem.cluster->device(d).type];
      if (seconds < 0) {
        seconds = group_seconds(c, group, c.problem.cluster->device(d).type, c.problem.batch);
      }
      const double capacity = c.device_capacity[d.value()];
      c.actions.push_back(
          {.compute_seconds = seconds,
           .boundary_seconds = boundary * c.device_seconds_per_byte[d.value()],
           .state_share = static_cast<double>(totals.state_bytes) / capacity,
           .activation_share = static_cast<double>(totals.activation_bytes) / capacity,
           .model_share = (state + activation) / capacity});
    }
    for (const Replication* r : {&even, &proportional}) {
      const double seconds = replicated_seconds(c, group, *r);
      if (r == &even) c.total_even_seconds += seconds;
      for (double sync : {totals.parameter_server_seconds, totals.all_reduce_seconds}) {
        c.actions.push_back(
            {.compute_seconds = seconds,
             .sync_seconds = sync,
             .state_share = static_cast<double>(totals.state_bytes) * r->state_per_byte,
             .activation_share =
                 static_cast<double>(totals.activation_bytes) * r->activation_per_byte,
             .model_share = state * r->state_per_byte + activation * r->activation_per_byte});
      }
    }
    double compute = std::numeric_limits<double>::infinity();
    double total = compute;
    for (int a = 0; a < c.action_count; ++a) {
      const ActionEstimate& estimate = c.action(group, a);
      compute = std::min(compute, estimate.compute_seconds);
      total = std::min(total, estimate.compute_seconds + estimate.sync_seconds);
    }
    c.least_compute_seconds.push_back(compute);
    c.least_total_seconds.push_back(total);
  }
}

// Spans [begin, end) of sizes laid end to end, as shares of their sum.
std::vector<std::array<double, 2>> spans(const std::vector<double>& sizes) {
  const double total = std::max(std::accumulate(sizes.begin(), sizes.end(), 0.0), 1e-30);
  std::vector<std::array<double, 2>> result;
  double at = 0;
  for (double size : sizes) {
    result.push_back({at / total, (at + size) / total});
    at += size;
  }
  return result;
}

void lay_out(FeatureContext& c) {
  std::vector<double> memory, seconds, speed;
  for (const GroupTotals& totals : c.groups) {
    memory.push_back(static_cast<double>(totals.state_bytes + totals.activation_bytes));
    seconds.push_back(totals.mean_seconds);
  }
  for (double s : c.device_seconds) speed.push_back(1.0 / s);
  c.group_memory_span = spans(memory);
  c.group_time_span = spans(seconds);
  c.device_memory_span = spans(c.device_capacity);
  c.device_speed_span = spans(speed);
}

}  // namespace

FeatureContext::FeatureContext(const cost::Problem& problem) : problem(problem) {
  describe_cluster(*this);
  fold_aliases(*this);
  total_groups(*this);
  estimate_actions(*this);
  lay_out(*this);
}

}  // namespace heterog::gnn

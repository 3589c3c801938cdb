// Asks a cost model about every op once and keeps the answers for constant-time look-up.
#include "cost/cost_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace heterog::cost {
namespace {

// Slices that largest-remainder rounding can give a device with `part` of `total` shares.
void add_slices(std::set<std::int64_t>& knots, std::int64_t batch, int part, int total) {
  const std::int64_t floor = batch * part / total;
  for (std::int64_t samples : {floor, floor + 1}) {
    if (samples >= 1 && samples <= batch) knots.insert(samples);
  }
}

// Every count up to 64, and steps of a thirty-second beyond: a wave of tiles more makes a step, and
// the line between two knots hides it no longer than that.
void add_steps(std::set<std::int64_t>& knots, std::int64_t batch) {
  for (std::int64_t samples = 1; samples <= batch;
       samples += std::max<std::int64_t>(1, samples / 32)) {
    knots.insert(samples);
  }
}

// The least time of an operator at which the operators of a step, each at least that long, take as
// long as the host needs to start them all: it starts them ahead of the device, so that long
// operators hide the starts of short ones. 0 where the device is slower anyway.
double host_floor(std::vector<double> seconds, double host_seconds) {
  const double needed = host_seconds * static_cast<double>(seconds.size());
  double rest = std::accumulate(seconds.begin(), seconds.end(), 0.0);  // of those above the floor
  if (needed <= rest) return 0;
  std::sort(seconds.begin(), seconds.end());
  for (std::size_t raised = 1; raised <= seconds.size(); ++raised) {
    rest -= seconds[raised - 1];
    const double floor = (needed - rest) / static_cast<double>(raised);
    if (raised == seconds.size() || floor <= seconds[raised]) return floor;
  }
  return 0;  // no operator
}

std::vector<int> proportional(const cluster::Cluster& cluster,
                              const IdVector<DeviceTypeId, double>& speed) {
  double slowest = std::numeric_limits<double>::infinity();
  for (DeviceId device : cluster.device_ids()) {
    slowest = std::min(slowest, speed[cluster.device(device).type]);
  }
  std::vector<int> replicas;
  for (DeviceId device : cluster.device_ids()) {
    const double ratio = speed[cluster.device(device).type] / slowest;
    // Above this the slowest device would get no whole sample anyway.
    replicas.push_back(ratio >= 1 ? static_cast<int>(std::min(std::round(ratio), 1e6)) : 1);
  }
  return replicas;
}

}  // namespace

CostTable::Place CostTable::place(std::int64_t samples) const {
  EXPECT(samples >= 0);
  if (static_cast<std::size_t>(samples) < places_.size()) return places_[samples];
  // Past the batch: the last segment goes on.
  Place last = places_.back();
  if (knots_.size() > 1) {
    const std::int64_t left = knots_[last.knot];
    last.fraction =
        static_cast<float>(samples - left) / static_cast<float>(knots_[last.knot + 1] - left);
  }
  return last;
}

double CostTable::at(float Cost::*value, OpId op, DeviceTypeId type, std::int64_t samples) const {
  const Place where = place(samples);
  const Cost* left = costs_.data() + index(where.knot, op, type);
  const double begin = left->*value;
  if (where.fraction == 0) return begin;
  return std::max(begin + (left[row_].*value - begin) * where.fraction, 0.0);
}

Nanoseconds CostTable::duration(OpId op, DeviceTypeId type, std::int64_t samples) const {
  return to_nanoseconds(at(&Cost::seconds, op, type, samples));
}

Bytes CostTable::workspace_bytes(OpId op, DeviceTypeId type, std::int64_t samples) const {
  return static_cast<Bytes>(std::ceil(at(&Cost::workspace, op, type, samples)));
}

// Refuses a graph that multiplies in bfloat16 on devices whose libraries do not.
static void check_bfloat16(const graph::ModelGraph& graph, const cluster::Cluster& cluster) {
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
    const cluster::DeviceType& device = cluster.type(type);
    if (device.bf16_flops_per_second.value_or(1) > 0) continue;
    for (OpId op : graph.op_ids()) {
      if (graph.op(op).alias) continue;
      const OpWork work = op_work(graph, op, 1);
      VALIDATE(work.flop == 0 || work.dtype != graph::DType::kBFloat16,
               "op '{}' multiplies in bfloat16, which {} cannot; export the model in float16, or "
               "leave these devices out of the cluster",
               graph.op(op).name, device.name);
    }
  }
}

// Nanoseconds of a million such ops still add up in 64 bits.
constexpr double kMaxOpSeconds = 1e4;

CostTable analyze(const graph::ModelGraph& graph, const cluster::Cluster& cluster,
                  const CostModel& model, std::int64_t batch) {
  VALIDATE(batch >= 1 && batch <= graph::kMaxSamples, "batch is {}; it must be between 1 and {}",
           batch, graph::kMaxSamples);
  check_bfloat16(graph, cluster);
  const auto ask = [&](OpId op, std::int64_t samples, const cluster::DeviceType& type) {
    const double seconds = model.seconds(graph, op, samples, type);
    VALIDATE(seconds >= 0 && seconds <= kMaxOpSeconds,
             "the cost model says {} seconds for op '{}' on {} with {} samples; times must be from "
             "0 to {}",
             seconds, graph.op(op).name, type.name, samples, kMaxOpSeconds);
    return seconds;
  };

  CostTable table;
  table.types_ = cluster.place_type_count();
  const auto types = id_range<DeviceTypeId>(table.types_);
  // What hosts alone have runs updates alone: nobody asks about the rest, which stays 0.
  const auto runs = [&](OpId op, DeviceTypeId type) {
    return type.value() < cluster.type_count() || graph.op(op).phase == graph::Phase::kUpdate;
  };

  // The whole batch first: the speeds that it gives decide the slices of proportional replication.
  std::vector<double> whole(graph.op_count() * table.types_, 0);
  IdVector<DeviceTypeId, double> total(table.types_, 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    for (DeviceTypeId type : types) {
      if (!runs(op, type)) continue;
      const double seconds = ask(op, batch, cluster.type(type));
      whole[op.value() * table.types_ + type.value()] = seconds;
      total[type] += seconds;
    }
  }
  table.model_speed_.assign(table.types_, 0);
  for (DeviceTypeId type : types) {
    // A model that costs nothing is infinitely fast; keep ratios finite.
    table.model_speed_[type] = 1 / std::max(total[type], 1e-12);
  }

  std::set<std::int64_t> knots{1, batch};
  add_steps(knots, batch);
  const int devices = static_cast<int>(cluster.device_count());
  add_slices(knots, batch, 1, devices);
  const std::vector<int> replicas = proportional(cluster, table.model_speed_);
  std::int64_t shares = 0;
  for (int count : replicas) shares += count;
  for (int count : replicas) add_slices(knots, batch, count, static_cast<int>(shares));
  table.knots_.assign(knots.begin(), knots.end());

  const std::size_t columns = table.knots_.size();
  table.places_.resize(static_cast<std::size_t>(batch) + 1);
  for (std::int64_t samples = 0, knot = 0; samples <= batch && columns > 1; ++samples) {
    while (knot + 2 < static_cast<std::int64_t>(columns) && table.knots_[knot + 1] <= samples) {
      ++knot;
    }
    const std::int64_t left = table.knots_[knot], right = table.knots_[knot + 1];
    table.places_[samples] = {
        static_cast<std::uint32_t>(knot),
        static_cast<float>(samples - left) / static_cast<float>(right - left)};
  }

  table.row_ = graph.op_count() * table.types_;
  table.costs_.resize(columns * table.row_);
  table.mean_seconds_.assign(graph.op_count(), 0);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    for (DeviceTypeId type : types) {
      if (!runs(op, type)) continue;
      const double last = whole[op.value() * table.types_ + type.value()];
      for (std::size_t k = 0; k < columns; ++k) {
        const std::int64_t samples = table.knots_[k];
        const double seconds = k + 1 == columns ? last : ask(op, samples, cluster.type(type));
        const Bytes workspace = model.workspace_bytes(graph, op, samples, cluster.type(type));
        VALIDATE(workspace >= 0,
                 "the cost model says {} bytes of workspace for op '{}'; it must "
                 "be 0 or more",
                 workspace, graph.op(op).name);
        table.costs_[table.index(k, op, type)] = {static_cast<float>(seconds),
                                                  static_cast<float>(workspace)};
      }
    }
    for (DeviceId device : cluster.device_ids()) {
      table.mean_seconds_[op.value()] +=
          whole[op.value() * table.types_ + cluster.device(device).type.value()];
    }
    table.mean_seconds_[op.value()] /= devices;
  }
  for (DeviceTypeId type : types) {
    if (cluster.type(type).host_seconds > 0) table.charge_host(graph, type, cluster.type(type));
  }
  return table;
}

void CostTable::charge_host(const graph::ModelGraph& graph, DeviceTypeId type,
                            const cluster::DeviceType& device) {
  std::vector<OpId> started;
  for (OpId op : graph.op_ids()) {
    if (!graph.op(op).alias) started.push_back(op);
  }
  std::vector<double> seconds(started.size());
  for (std::size_t k = 0; k < knots_.size(); ++k) {
    for (std::size_t i = 0; i < started.size(); ++i)
      seconds[i] = costs_[index(k, started[i], type)].seconds;
    const auto floor = static_cast<float>(host_floor(seconds, device.host_seconds));
    for (OpId op : started) {
      float& value = costs_[index(k, op, type)].seconds;
      value = std::max(value, floor);
    }
  }
}

CostTable scaled(CostTable costs, const cluster::Cluster& cluster,
                 const std::function<double(OpId op, DeviceTypeId type)>& factor) {
  IdVector<DeviceTypeId, double> total(costs.types_, 0);
  for (OpId op : id_range<OpId>(costs.mean_seconds_.size())) {
    const auto whole = [&](DeviceTypeId type) -> double {
      return costs.costs_[costs.index(costs.knots_.size() - 1, op, type)].seconds;
    };
    for (DeviceTypeId type : id_range<DeviceTypeId>(costs.types_)) {
      const double times = factor(op, type);
      for (std::size_t k = 0; k < costs.knots_.size(); ++k) {
        float& seconds = costs.costs_[costs.index(k, op, type)].seconds;
        seconds = static_cast<float>(seconds * times);
      }
      total[type] += whole(type);
    }
    double sum = 0;
    for (DeviceId device : cluster.device_ids()) sum += whole(cluster.device(device).type);
    costs.mean_seconds_[op.value()] = sum / static_cast<double>(cluster.device_count());
  }
  for (DeviceTypeId type : id_range<DeviceTypeId>(costs.types_)) {
    costs.model_speed_[type] = 1 / std::max(total[type], 1e-12);
  }
  return costs;
}

CostTable merged(const CostTable& costs, const cluster::Cluster& cluster,
                 std::span<const MergedOps> members) {
  CostTable table;
  table.types_ = costs.types_;
  table.row_ = members.size() * costs.types_;
  table.knots_ = costs.knots_;
  table.places_ = costs.places_;
  table.model_speed_ = costs.model_speed_;
  table.costs_.resize(costs.knots_.size() * table.row_);
  const auto add = [&](std::size_t i, OpId op, DeviceTypeId type, float less) {
    for (std::size_t k = 0; k < costs.knots_.size(); ++k) {
      const CostTable::Cost& one = costs.costs_[costs.index(k, op, type)];
      CostTable::Cost& all = table.costs_[table.index(k, OpId(i), type)];
      all.seconds += std::max(0.0F, one.seconds - less);
      all.workspace = std::max(all.workspace, one.workspace);
    }
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    double mean = 0;
    for (OpId op : members[i].apart) mean += costs.mean_seconds(op);
    table.mean_seconds_.push_back(mean);
    for (DeviceTypeId type : id_range<DeviceTypeId>(costs.types_)) {
      const auto launch = static_cast<float>(cluster.type(type).launch_seconds);
      for (OpId op : members[i].apart) add(i, op, type, 0);
      for (OpId op : members[i].listed) add(i, op, type, launch);
    }
  }
  return table;
}

std::vector<int> proportional_replicas(const cluster::Cluster& cluster, const CostTable& costs) {
  IdVector<DeviceTypeId, double> speed(cluster.place_type_count());
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.place_type_count())) {
    speed[type] = costs.model_speed(type);
  }
  return proportional(cluster, speed);
}

}  // namespace heterog::cost

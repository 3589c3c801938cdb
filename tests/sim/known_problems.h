// Problems whose schedules can be worked out on paper: layers of one long operation each, devices
// of two speeds, links of whole bytes a nanosecond.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/builders.h"
#include "compiler/compile.h"
#include "cost/problem.h"
#include "sim/simulator.h"
#include "support/graphs.h"

namespace heterog::sim {

// Named operators take `per_sample` for each sample (twice that on a device type called "slow"),
// all others nothing.
class NamedOps final : public cost::CostModel {
 public:
  NamedOps(std::string type, Nanoseconds per_sample)
      : type_(std::move(type)), per_sample_(per_sample) {}
  double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                 const cluster::DeviceType& type) const override {
    if (graph.type_name(graph.op(op).type) != type_) return 0;
    const Nanoseconds whole = per_sample_ * samples * (type.name == "slow" ? 2 : 1);
    // The table keeps floats and times are rounded up: from the middle it is up to this one.
    return (static_cast<double>(whole) - 0.5) * 1e-9;
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }

 private:
  std::string type_;
  Nanoseconds per_sample_;
};

// A device that adds, copies and launches in no time, with room for everything.
inline cluster::DeviceType known_device(const std::string& name) {
  cluster::DeviceType type = cluster::test_type(name);
  type.memory_bytes = 1 << 30;
  type.memory_bytes_per_second = 1e24;
  return type;
}

// One machine of these devices; ports and NIC in bytes a nanosecond, no latency.
struct KnownMachine {
  std::vector<std::string> devices = {"fast"};
  double nic = 1;
  double port = 10;
};

// `cap`: of one flow, bytes a nanosecond; 0: none.
inline cluster::Cluster known_cluster(const std::vector<KnownMachine>& machines, double cap = 0) {
  cluster::ClusterBuilder builder("known");
  for (const KnownMachine& machine : machines) {
    cluster::MachineSpec spec;
    spec.name = std::string(1, static_cast<char>('a' + (&machine - machines.data())));
    for (const std::string& name : machine.devices) spec.devices.push_back(known_device(name));
    spec.fabric.port_bytes_per_second = machine.port * 1e9;
    spec.nic.bytes_per_second = machine.nic * 1e9;
    builder.add_machine(std::move(spec));
  }
  builder.set_network({.flow_cap_bytes_per_second = cap * 1e9});
  return std::move(builder).build("known");
}

// A problem, the plan of a strategy for it, and what the simulator makes of that.
class Known {
 public:
  Known(graph::ModelGraph graph, cluster::Cluster cluster, const cost::CostModel& model,
        std::int64_t batch)
      : problem_(cost::make_problem(std::make_shared<const graph::ModelGraph>(std::move(graph)),
                                    std::make_shared<const cluster::Cluster>(std::move(cluster)),
                                    model, batch)) {}

  const cost::Problem& problem() const { return *problem_; }
  const compiler::Plan& plan() const { return plan_; }
  const SimResult& run(const decide::Strategy& strategy) {
    plan_ = compiler::compile(*problem_, strategy);
    result_ = simulate(plan_, strategy.order);
    return result_;
  }
  // The only task of this kind that `matches`; invalid if there is none or more than one.
  template <class Matches>
  TaskId task(compiler::TaskKind kind, Matches matches) const {
    TaskId found;
    for (TaskId id : plan_.task_ids()) {
      if (plan_.kind[id] != kind || !matches(id)) continue;
      if (found.valid()) return TaskId();
      found = id;
    }
    return found;
  }
  // Of an op on a device; of what is moved from a device (invalid: from any) to another.
  TaskId compute(OpId op, std::size_t device) const {
    return task(compiler::TaskKind::kCompute, [&](TaskId id) {
      return plan_.op[id] == op && plan_.device[id] == DeviceId(device);
    });
  }
  TaskId moved(compiler::TaskKind kind, TensorId tensor, std::size_t from, std::size_t to) const {
    return task(kind, [&](TaskId id) {
      return plan_.tensor[id] == tensor && plan_.peer[id] == DeviceId(from) &&
             plan_.device[id] == DeviceId(to);
    });
  }
  TaskId reduced(TensorId tensor) const {
    return task(compiler::TaskKind::kAllReduce,
                [&](TaskId id) { return plan_.tensor[id] == tensor; });
  }
  Nanoseconds start(TaskId id) const { return id.valid() ? result_.start[id] : -1; }
  Nanoseconds end(TaskId id) const { return id.valid() ? result_.end[id] : -1; }

 private:
  std::unique_ptr<const cost::Problem> problem_;
  compiler::Plan plan_;
  SimResult result_;
};

// The backward pass of `count` layers y = sigmoid(x·w) of one width, the last layer first, then
// plain SGD; activations are inputs. BP_i of HeteroG's figures is sigmoid_backward, the only
// operation that takes time; behind it come the gradient of w_i and that of x_i, which BP_(i+1)
// reads. Every w has 4·width² bytes, a sample of a gradient 4·width.
struct Backward {
  struct Layer {
    TensorId weight, weight_gradient, input_gradient;
    OpId bp;
    std::vector<OpId> ops;  // with the update of the weight
  };
  graph::ModelGraph graph;
  std::vector<Layer> layers;  // in order of execution
};

inline Backward backward_graph(int count, std::int64_t width) {
  using graph::Phase;
  using graph::tensor_value;
  using support::kB;
  using support::n;
  support::GraphMaker make("backward");
  const support::OpOptions backward{.phase = Phase::kBackward};
  const TensorId lr = make.input("lr", {});
  TensorId gradient = make.input("g", {kB, n(width)});
  std::vector<Backward::Layer> layers;
  for (int i = 0; i < count; ++i) {
    const std::string index = std::to_string(i);
    const TensorId x = make.input("x" + index, {kB, n(width)});
    const TensorId y = make.input("y" + index, {kB, n(width)});
    Backward::Layer layer;
    layer.weight = make.parameter("w" + index, {n(width), n(width)});
    const TensorId at_sum =
        make.op("aten.sigmoid_backward.default", {tensor_value(gradient), tensor_value(y)},
                {kB, n(width)}, backward);
    const TensorId x_t = make.op("aten.t.default", {tensor_value(x)}, {n(width), kB}, backward);
    layer.weight_gradient = make.op(
        "aten.mm.default", {tensor_value(x_t), tensor_value(at_sum)}, {n(width), n(width)},
        {.phase = Phase::kBackward, .role = graph::TensorRole::kGradient, .of = layer.weight});
    const TensorId w_t =
        make.op("aten.t.default", {tensor_value(layer.weight)}, {n(width), n(width)}, backward);
    layer.input_gradient = gradient = make.op(
        "aten.mm.default", {tensor_value(at_sum), tensor_value(w_t)}, {kB, n(width)}, backward);
    layer.bp = make.maker(at_sum);
    for (TensorId made : {at_sum, x_t, layer.weight_gradient, w_t, gradient}) {
      layer.ops.push_back(make.maker(made));
    }
    layers.push_back(std::move(layer));
  }
  for (Backward::Layer& layer : layers) {
    const TensorId step =
        make.op("aten.mul.Tensor", {tensor_value(layer.weight_gradient), tensor_value(lr)},
                {n(width), n(width)}, {.phase = Phase::kUpdate});
    const TensorId next = make.op(
        "aten.sub.Tensor", {tensor_value(layer.weight), tensor_value(step)}, {n(width), n(width)},
        {.phase = Phase::kUpdate, .role = graph::TensorRole::kOutput, .replaces = layer.weight});
    layer.ops.push_back(make.maker(step));
    layer.ops.push_back(make.maker(next));
  }
  return {std::move(make).build(), std::move(layers)};
}

// One unit a layer, decided apart.
inline decide::Strategy by_layer(const Backward& model, std::size_t op_count,
                                 const std::vector<decide::UnitDecision>& decisions) {
  decide::Strategy strategy;
  strategy.unit_of_op.assign(op_count, UnitId());
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const UnitId unit = strategy.units.push_back(decisions[i]);
    for (OpId op : model.layers[i].ops) strategy.unit_of_op[op] = unit;
  }
  return strategy;
}

// One replica for each entry, of equal weight: a device named twice has two.
inline decide::UnitDecision on(std::vector<std::size_t> devices,
                               decide::SyncMethod sync = decide::SyncMethod::kAllReduce) {
  decide::UnitDecision decision;
  decision.sync = sync;
  for (std::size_t device : devices) decision.replicas.push_back({DeviceId(device), 1});
  return decision;
}

}  // namespace heterog::sim

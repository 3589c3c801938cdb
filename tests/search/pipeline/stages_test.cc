// Chains of real models, the line of devices, and the dynamic program against all partitions.
#include "search/pipeline/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "decide/problems.h"
#include "search/pipeline/device_order.h"
#include "search/pipeline/stage_strategy.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

class ChainTest : public testing::TestWithParam<const char*> {};

// What crosses a cut, counted tensor by tensor.
TEST_P(ChainTest, IsInOrderAndSaysWhatCrosses) {
  const auto problem = load_test_problem(GetParam(), "heterog-4gpu", 16);
  const graph::ModelGraph& graph = *problem->graph;
  const Chain chain = make_chain(*problem, 8);
  ASSERT_GE(chain.layers.size(), 4u);
  std::vector<std::set<TensorId>> crosses(chain.layers.size());
  for (OpId op : problem->folded->ops) {
    ASSERT_LT(chain.layer_of[op], chain.layers.size());
    if (graph.op(op).phase != graph::Phase::kForward) continue;
    for (const graph::Read& read : problem->folded->reads[op]) {
      if (!read.producer.valid() || graph.op(read.producer).phase != graph::Phase::kForward) {
        continue;
      }
      const std::uint32_t from = chain.layer_of[read.producer], to = chain.layer_of[op];
      ASSERT_LE(from, to) << graph.op(op).name;
      for (std::uint32_t cut = from; cut < to; ++cut) crosses[cut].insert(read.base);
    }
  }
  for (std::size_t cut = 0; cut + 1 < chain.layers.size(); ++cut) {
    for (std::int64_t samples : {1, 16}) {
      Bytes bytes = 0;
      for (TensorId tensor : crosses[cut]) bytes += graph.bytes(tensor, samples);
      EXPECT_DOUBLE_EQ(chain.layers[cut].crossing_fixed +
                           chain.layers[cut].crossing_per_sample * static_cast<double>(samples),
                       static_cast<double>(bytes));
    }
  }
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != graph::Phase::kBackward || !graph.op(op).forward.valid()) continue;
    // Of a layer, unless it reads what an earlier one sends on.
    std::uint32_t layer = chain.layer_of[graph.op(op).forward];
    for (TensorId in : graph.inputs(op)) {
      const OpId producer = graph.tensor(in).producer;
      if (producer.valid() && graph.op(producer).phase == graph::Phase::kBackward) {
        layer = std::min(layer, chain.layer_of[producer]);
      }
    }
    EXPECT_EQ(chain.layer_of[op], layer);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChainTest,
                         testing::Values("bert_large24-tiny", "resnet50-tiny", "gnmt4-tiny",
                                         "nasnet_a_large-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Where forward passes run again a stage keeps what comes into it and what its layers make for each
// other, each tensor once, however many layers read it.
TEST(StageCosts, KeepWhatLayersReadOnceWhereForwardPassesRunAgain) {
  const auto problem = load_test_problem("gnmt4-tiny", "heterog-4gpu", 16);
  const graph::ModelGraph& graph = *problem->graph;
  const Chain chain = recomputed(make_chain(*problem, 9));
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 1, false);
  IdVector<OpId, std::uint8_t> of_parameters(graph.op_count(), 0);
  for (const graph::ParameterOp& made : problem->folded->parameter_ops) of_parameters[made.op] = 1;
  const auto is_forward = [&](OpId op) { return graph.op(op).phase == graph::Phase::kForward; };
  const StageCosts::Group group = costs.group(std::vector<DeviceId>{DeviceId(0)});
  const double resident = costs.held_bytes(0, chain.layers.size(), group, 0);
  for (std::size_t begin = 0; begin < chain.layers.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= chain.layers.size(); ++end) {
      std::set<TensorId> kept;
      for (OpId op : problem->folded->ops) {
        if (!is_forward(op)) continue;
        for (const graph::Read& read : problem->folded->reads[op]) {
          if (!read.producer.valid() || !is_forward(read.producer)) continue;
          if (of_parameters[read.producer]) continue;
          const std::size_t from = chain.layer_of[read.producer], to = chain.layer_of[op];
          const bool comes_in = from < begin && to >= begin;
          const bool inside = from >= begin && from + 1 < end && from < to;
          if (comes_in || inside) kept.insert(read.base);
        }
      }
      double bytes = 0;
      for (TensorId tensor : kept) bytes += static_cast<double>(graph.bytes(tensor, 16));
      double once = 0;  // of parameters alone, whatever reads it
      if (begin > 0) once = chain.layers[begin - 1].crossing_once;
      EXPECT_NEAR(costs.held_bytes(begin, end, group, 3) - costs.held_bytes(begin, end, group, 0),
                  3 * (bytes + once), 1e-6 * resident);
    }
  }
}

// Blocks take a little longer than layers. Between them a residual alone crosses, within them
// several tensors of its size do.
TEST(Chain, IsCutBetweenAllBlocks) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 48);
  const Chain chain = make_chain_of_blocks(*problem, 31);
  std::vector<double> crossing;
  for (const Chain::Layer& layer : chain.layers) crossing.push_back(layer.crossing_per_sample);
  crossing.pop_back();
  std::ranges::sort(crossing);
  const double middle = crossing[crossing.size() / 2];
  const auto between = std::ranges::count_if(
      crossing, [&](double one) { return std::abs(one - middle) <= 0.01 * middle; });
  EXPECT_GE(between, 23);
  EXPECT_LE(chain.layers.size(), 2u * 31);
}

// A sum of gradients that is said to differentiate a constant, which stands before all layers. The
// first gradient is made from sizes, or has its form from the loss, and runs once a device.
graph::ModelGraph graph_with_constant(bool from_sizes) {
  using graph::tensor_value;
  support::GraphMaker maker;
  const support::GraphMaker::Shape rows = {support::kB, support::n(4)};
  const auto op = [&](const char* type, std::vector<graph::Value> args,
                      support::OpOptions options = {}) {
    return maker.op(type, std::move(args), rows, options);
  };
  const TensorId constant =
      maker.op("aten.full.default", {graph::list_value({}), graph::float_value(0)}, {});
  const TensorId input = maker.input("x", rows);
  const TensorId weight = maker.parameter("weight", {support::n(4)});
  const TensorId first = op("aten.mul.Tensor", {tensor_value(input), tensor_value(weight)});
  const TensorId second = op("aten.relu.default", {tensor_value(first)});
  const TensorId third = op("aten.relu.default", {tensor_value(second)});
  const TensorId loss =
      maker.op("aten.sum.default", {tensor_value(third)}, {}, {.role = graph::TensorRole::kOutput});
  maker.loss(loss);
  const auto backward_of = [&](TensorId tensor) {
    return support::OpOptions{.phase = graph::Phase::kBackward, .forward = maker.maker(tensor)};
  };
  const support::OpOptions backward{.phase = graph::Phase::kBackward};
  const TensorId ones =
      from_sizes ? maker.op("aten.ones.default", {graph::list_value({})}, {}, backward)
                 : maker.op("aten.ones_like.default", {tensor_value(loss)}, {}, backward);
  TensorId gradient =
      op("aten.expand.default",
         {tensor_value(ones), graph::list_value({graph::size_value(1, 0), graph::int_value(4)})},
         backward_of(loss));
  gradient = op("aten.add.Tensor", {tensor_value(gradient), tensor_value(gradient)},
                backward_of(constant));
  gradient =
      op("aten.threshold_backward.default",
         {tensor_value(gradient), tensor_value(third), graph::int_value(0)}, backward_of(third));
  gradient =
      op("aten.threshold_backward.default",
         {tensor_value(gradient), tensor_value(second), graph::int_value(0)}, backward_of(second));
  const TensorId of_rows =
      op("aten.mul.Tensor", {tensor_value(gradient), tensor_value(input)}, backward_of(first));
  const TensorId of_weight = maker.op(
      "aten.sum.dim_IntList", {tensor_value(of_rows), graph::list_value({graph::int_value(0)})},
      {support::n(4)}, backward_of(first));
  maker.op(
      "aten.sub.Tensor", {tensor_value(weight), tensor_value(of_weight)}, {support::n(4)},
      {.phase = graph::Phase::kUpdate, .role = graph::TensorRole::kOutput, .replaces = weight});
  return std::move(maker).build();
}

// Else all backward passes behind it were in the first layer, and their activations went there.
TEST(Chain, LayersGoByNoConstant) {
  const auto problem = decide::toy_problem(graph_with_constant(true), 2, 8);
  const Chain chain = chain_cut_after(*problem, {2});  // full, mul, relu | relu, sum
  ASSERT_EQ(chain.layers.size(), 2u);
  for (OpId op : problem->graph->op_ids()) {
    const std::string& name = problem->graph->op(op).name;
    if (name != "add" && !name.starts_with("threshold_backward")) continue;
    EXPECT_EQ(chain.layer_of[op], name == "threshold_backward_1" ? 0u : 1u) << name;
  }
}

// What runs once a device waits for all micro-batches that it reads, and so does who reads it.
TEST(InLine, NothingThatRunsOnceADeviceReadsSlices) {
  for (const bool from_sizes : {true, false}) {
    const auto problem = decide::toy_problem(graph_with_constant(from_sizes), 2, 8);
    EXPECT_EQ(in_line(*problem, chain_cut_after(*problem, {2})), from_sizes);
  }
}

// Devices of a machine are joined better than machines are.
TEST(DeviceOrder, KeepsMachinesTogether) {
  for (const char* name : {"heterog-8gpu", "heterog-12gpu", "office-mixed", "spp-a"}) {
    const auto cluster = cluster::load_cluster("configs/clusters/" + std::string(name) + ".json");
    const std::vector<DeviceId> line = recursive_device_order(cluster);
    ASSERT_EQ(std::set<DeviceId>(line.begin(), line.end()).size(), cluster.device_count());
    std::set<MachineId> left;
    for (std::size_t i = 1; i < line.size(); ++i) {
      const MachineId before = cluster.device(line[i - 1]).machine;
      const MachineId here = cluster.device(line[i]).machine;
      if (before == here) continue;
      left.insert(before);
      EXPECT_FALSE(left.contains(here)) << name;
    }
  }
}

// 12 runs of 6 devices would cut every machine of 8 in two places.
TEST(Line, RunsAreMachinesOrPartsOfThem) {
  const auto problem = load_test_problem("bert_large24-tiny", "tensorflow-ec2-64gpu", 64);
  const cluster::Cluster& cluster = *problem->cluster;
  const Chain chain = make_chain(*problem, 8);
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 4, false);
  std::vector<DeviceId> devices_in_order;
  for (DeviceId device : cluster.device_ids()) devices_in_order.push_back(device);
  const Line line(costs, devices_in_order);
  EXPECT_GT(line.runs(), 4u);
  EXPECT_LE(line.runs(), 12u);
  std::set<MachineId> seen;
  for (std::size_t run = 0; run < line.runs(); ++run) {
    std::set<MachineId> machines;
    for (DeviceId device : line.devices(run, 1)) machines.insert(cluster.device(device).machine);
    std::size_t devices = 0;
    for (MachineId machine : machines) devices += cluster.machine(machine).devices.size();
    EXPECT_TRUE(machines.size() == 1 || devices == line.devices(run, 1).size());
    seen.insert(machines.begin(), machines.end());
  }
  EXPECT_EQ(seen.size(), cluster.machine_count());
}

double worst_of(const StageCosts& costs, const std::vector<Stage>& stages, double micro_batches) {
  double worst = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& one = stages[s];
    worst = std::max(worst, micro_batches * costs.compute(one.begin, one.end, one.devices) +
                                costs.all_reduce(one.begin, one.end, one.devices));
    if (s + 1 == stages.size()) continue;
    worst =
        std::max(worst, micro_batches * costs.channel(one.end, one.devices, stages[s + 1].devices));
  }
  return worst;
}

// All ways to cut layers and the line of devices into so many stages.
void each_partition(std::size_t layers, std::span<const DeviceId> line, std::size_t stages,
                    std::vector<Stage>& made,
                    const std::function<void(const std::vector<Stage>&)>& take) {
  const std::size_t begin = made.empty() ? 0 : made.back().end;
  if (stages == 1) {
    if (begin >= layers || line.empty()) return;
    made.push_back({begin, layers, {line.begin(), line.end()}});
    take(made);
    made.pop_back();
    return;
  }
  for (std::size_t end = begin + 1; end < layers; ++end) {
    for (std::size_t devices = 1; devices < line.size(); ++devices) {
      const auto own = line.first(devices);
      made.push_back({begin, end, {own.begin(), own.end()}});
      each_partition(layers, line.subspan(devices), stages - 1, made, take);
      made.pop_back();
    }
  }
}

TEST(Partition, IsTheBestOfAll) {
  for (const char* model : {"bert_large24-tiny", "vgg19", "gnmt4"}) {
    const auto problem = load_test_problem(model, "heterog-4gpu", 24);
    const Chain chain = make_chain(*problem, 7);
    ASSERT_LE(chain.layers.size(), 7u);
    for (bool paper : {false, true}) {
      LayerTimes times(*problem, chain);
      const StageCosts costs(times, 4, paper);
      const std::vector<DeviceId> line = recursive_device_order(*problem->cluster);
      const Line along(costs, line);
      const Partitioner partitioner(costs, along, 4, 4);
      for (std::size_t stages = 1; stages <= 4; ++stages) {
        const auto found = partitioner.partition(stages);
        double best = 1e30;
        std::vector<Stage> made;
        each_partition(chain.layers.size(), line, stages, made,
                       [&](const auto& all) { best = std::min(best, worst_of(costs, all, 4)); });
        ASSERT_TRUE(found);
        EXPECT_EQ(found->size(), stages);
        EXPECT_DOUBLE_EQ(worst_of(costs, *found, 4), best) << model << ' ' << stages;
      }
    }
  }
}

}  // namespace
}  // namespace heterog::search

// Whole steps whose schedule is worked out on paper: HeteroG's Fig. 2, unequal slices, resharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/known_problems.h"

namespace heterog::sim {
namespace {

using compiler::TaskKind;
using decide::Strategy;
using decide::SyncMethod;

// ---- HeteroG Fig. 1 and 2: GPU0 half as fast as GPU1 and GPU2, three BP operations in a row ----

// A sample takes 150 ns on GPU1 and GPU2 and 300 on GPU0; the batch is 60, NICs move 1 B/ns.
class Figure2 {
 public:
  explicit Figure2(std::int64_t width)
      : model_(backward_graph(3, width)),
        ops_(model_.graph.op_count()),
        layers_(model_.layers),
        known_(std::move(model_.graph), known_cluster({{{"slow"}}, {{"fast"}}, {{"fast"}}}),
               NamedOps("aten.sigmoid_backward.default", 150), 60) {}
  const SimResult& run(const std::vector<decide::UnitDecision>& decisions,
                       const std::vector<decide::ParameterSync>& sync = {}) {
    Strategy strategy = by_layer(model_, ops_, decisions);
    strategy.sync = sync;
    return known_.run(strategy);
  }
  const Backward::Layer& layer(int i) const { return layers_[i - 1]; }  // BP1, BP2, BP3
  const Known& step() const { return known_; }

 private:
  Backward model_;
  std::size_t ops_;
  std::vector<Backward::Layer> layers_;
  Known known_;
};

// Fig. 1: even replicas and all-reduce. 20 samples each: 6000 ns on GPU0, 3000 on the others, whose
// gradients then wait. w has 4·15² = 900 B, which three exchange: each NIC carries them twice:
// 1800.
TEST(HeteroGFigure1, EveryCollectiveWaitsForTheStraggler) {
  Figure2 figure(15);
  const auto even = on({0, 1, 2});
  const SimResult& result = figure.run({even, even, even});
  const Known& step = figure.step();
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(step.end(step.compute(figure.layer(i).bp, 0)), 6000 * i);
    EXPECT_EQ(step.end(step.compute(figure.layer(i).bp, 1)), 3000 * i);
    EXPECT_EQ(step.end(step.compute(figure.layer(i).bp, 2)), 3000 * i);
    EXPECT_EQ(step.start(step.reduced(figure.layer(i).weight_gradient)), 6000 * i);
    EXPECT_EQ(step.end(step.reduced(figure.layer(i).weight_gradient)), 6000 * i + 1800);
  }
  EXPECT_EQ(result.step, 3 * 6000 + 1800);
}

// Fig. 2(a): GPU0 is worker and server. GPU1 and GPU2 end BP_i at 3000·i and push 900 B each into
// GPU0's NIC, one after the other, GPU1 first: [3000i, +900] and [3000i + 900, +900], all under
// GPU0's own computation, so the slowest worker sends nothing. Sum i is ready when GPU0's own
// gradient is, at 6000·i, just when BP_(i+1) is, which ranks higher. So sum 1 waits for BP2, until
// 12000, and its update, ready at that moment like BP3, for BP3; the others come at 18000 too. The
// figure leaves the pulls out: six of 900 B, one after another over GPU0's NIC from then on.
TEST(HeteroGFigure2, ServerOnTheSlowestDevice) {
  Figure2 figure(15);
  const auto even = on({0, 1, 2}, SyncMethod::kParameterServer);
  std::vector<decide::ParameterSync> sync;
  for (int i = 1; i <= 3; ++i) {
    sync.push_back({figure.layer(i).weight, SyncMethod::kParameterServer, DeviceId(0)});
  }
  const SimResult& result = figure.run({even, even, even}, sync);
  const Known& step = figure.step();
  std::vector<Nanoseconds> pulls;
  for (int i = 1; i <= 3; ++i) {
    const Backward::Layer& layer = figure.layer(i);
    const TensorId gradient = layer.weight_gradient;
    EXPECT_EQ(step.start(step.moved(TaskKind::kPush, gradient, 1, 0)), 3000 * i);
    EXPECT_EQ(step.start(step.moved(TaskKind::kPush, gradient, 2, 0)), 3000 * i + 900);
    EXPECT_EQ(step.end(step.moved(TaskKind::kPush, gradient, 2, 0)), 3000 * i + 1800);
    const TaskId sum =
        step.task(TaskKind::kSum, [&](TaskId id) { return step.plan().tensor[id] == gradient; });
    EXPECT_EQ(step.plan().device[sum], DeviceId(0));
    EXPECT_EQ(step.start(sum), i == 1 ? 12000 : 18000);
    for (std::size_t to : {1, 2}) {
      pulls.push_back(step.start(step.moved(TaskKind::kPull, layer.weight, 0, to)));
    }
  }
  EXPECT_THAT(pulls, testing::UnorderedElementsAre(18000, 18900, 19800, 20700, 21600, 22500));
  EXPECT_EQ(result.step, 23400);
}

// Fig. 2(b): five replicas, two on each fast device: 12, 24 and 24 samples, 3600 ns on all three,
// and nobody waits for anybody.
TEST(HeteroGFigure2, FiveReplicasBalanceTheDevices) {
  Figure2 figure(15);
  const auto shares = on({0, 1, 1, 2, 2});
  const SimResult& result = figure.run({shares, shares, shares});
  const Known& step = figure.step();
  for (int i = 1; i <= 3; ++i) {
    for (std::size_t device : {0, 1, 2}) {
      EXPECT_EQ(step.end(step.compute(figure.layer(i).bp, device)), 3600 * i);
    }
    EXPECT_EQ(step.start(step.reduced(figure.layer(i).weight_gradient)), 3600 * i);
  }
  EXPECT_EQ(result.step, 3 * 3600 + 1800);
}

// Fig. 2(c), where gradients are large: w has 4·45² = 8100 B, to exchange takes 16200. BP2 and BP3
// run on GPU1 alone. BP1 ends at 3600 everywhere; its output, 180 B a sample, comes from GPU2 (24
// samples, the longer one, so the first) in [3600, 7920] and from GPU0 (12) in [7920, 10080]. Both
// hold GPU1's NIC, so the all-reduce of w1, of lower rank, comes after them: [10080, 26280]. BP2
// and BP3 take 60·150 = 9000 each and need no aggregation: 28080. Under (b) the three all-reduces
// follow each other from 3600 on: 52200; under Fig. 1 from 6000 on.
TEST(HeteroGFigure2, LastOperationsOnOneDevice) {
  Figure2 figure(45);
  const auto shares = on({0, 1, 1, 2, 2});
  EXPECT_EQ(figure.run({on({0, 1, 2}), on({0, 1, 2}), on({0, 1, 2})}).step, 6000 + 3 * 16200);
  EXPECT_EQ(figure.run({shares, shares, shares}).step, 3600 + 3 * 16200);
  const SimResult& result = figure.run({shares, on({1}), on({1})});
  const Known& step = figure.step();
  const Backward::Layer& first = figure.layer(1);
  EXPECT_EQ(step.start(step.moved(TaskKind::kTransfer, first.input_gradient, 2, 1)), 3600);
  EXPECT_EQ(step.start(step.moved(TaskKind::kTransfer, first.input_gradient, 0, 1)), 7920);
  EXPECT_EQ(step.start(step.reduced(first.weight_gradient)), 10080);
  EXPECT_EQ(step.end(step.reduced(first.weight_gradient)), 26280);
  EXPECT_EQ(step.start(step.compute(figure.layer(2).bp, 1)), 10080);
  EXPECT_EQ(step.start(step.compute(figure.layer(3).bp, 1)), 19080);
  EXPECT_FALSE(step.reduced(figure.layer(2).weight_gradient).valid());
  EXPECT_EQ(result.step, 28080);
}

// ---- unequal slices ----

// One layer, 8 samples of 100 ns as 6 + 2 on two like devices; w has 4·10² = 400 B.
class UnequalSlices {
 public:
  UnequalSlices()
      : model_(backward_graph(1, 10)),
        layer_(model_.layers[0]),
        known_(std::move(model_.graph), known_cluster({{}, {}}),
               NamedOps("aten.sigmoid_backward.default", 100), 8) {}
  Nanoseconds run(SyncMethod method, DeviceId server = {}) {
    Strategy strategy =
        decide::uniform_strategy(known_.problem(), {{{DeviceId(0), 3}, {DeviceId(1), 1}}, method});
    strategy.sync = {{layer_.weight, method, server}};
    return known_.run(strategy).step;
  }
  const Known& step() const { return known_; }
  const Backward::Layer& layer() const { return layer_; }

 private:
  Backward model_;
  Backward::Layer layer_;
  Known known_;
};

// Whatever its slice, a gradient is full size (decision 4): 2·1/2·400 ns from 600 on.
TEST(UnequalSlices, AllReduceMovesWholeGradients) {
  UnequalSlices slices;
  EXPECT_EQ(slices.run(SyncMethod::kAllReduce), 600 + 400);
  const TaskId reduced = slices.step().reduced(slices.layer().weight_gradient);
  EXPECT_EQ(slices.step().plan().moved_bytes[reduced], 400);
}

// Served by device 0, device 1 pushes in [200, 600] while device 0 computes: sum at 600, pull.
// Served by device 1, device 0 pushes at 600: sum at 1000, pull.
TEST(UnequalSlices, ServerOnTheLargerSliceHidesThePush) {
  UnequalSlices slices;
  EXPECT_EQ(slices.run(SyncMethod::kParameterServer, DeviceId(0)), 600 + 400);
  const TensorId gradient = slices.layer().weight_gradient;
  EXPECT_EQ(slices.step().start(slices.step().moved(TaskKind::kPush, gradient, 1, 0)), 200);
  EXPECT_EQ(slices.step().plan().moved_bytes[slices.step().moved(TaskKind::kPush, gradient, 1, 0)],
            400);
  EXPECT_EQ(slices.run(SyncMethod::kParameterServer, DeviceId(1)), 600 + 400 + 400);
  EXPECT_EQ(slices.step().start(slices.step().moved(TaskKind::kPush, gradient, 0, 1)), 600);
}

// ---- resharding, fetching once ----

// x → relu → neg and abs and exp, `width` floats a sample; every op takes 100 ns a sample.
struct Fan {
  explicit Fan(std::int64_t width) : make("fan") {
    using graph::tensor_value;
    const support::GraphMaker::Shape shape = {support::kB, support::n(width)};
    const TensorId x = make.input("x", shape);
    made = make.op("aten.relu.default", {tensor_value(x)}, shape);
    for (const char* type : {"aten.neg.default", "aten.abs.default", "aten.exp.default"}) {
      readers.push_back(make.maker(make.op(type, {tensor_value(made)}, shape)));
    }
    maker = make.maker(made);
  }
  Strategy strategy(const decide::UnitDecision& first,
                    const std::vector<decide::UnitDecision>& rest) const {
    Strategy strategy;
    strategy.unit_of_op.assign(1 + readers.size(), UnitId());
    strategy.unit_of_op[maker] = strategy.units.push_back(first);
    for (std::size_t i = 0; i < readers.size(); ++i) {
      strategy.unit_of_op[readers[i]] = strategy.units.push_back(rest[i]);
    }
    return strategy;
  }
  support::GraphMaker make;
  TensorId made;
  OpId maker;
  std::vector<OpId> readers;
};

class AllOps final : public cost::CostModel {
 public:
  double seconds(const graph::ModelGraph&, OpId, std::int64_t samples,
                 const cluster::DeviceType&) const override {
    return (static_cast<double>(100 * samples) - 0.5) * 1e-9;
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }
};

// Six samples of 400 B on three devices, [0,2) [2,4) [4,6), ready at 200; neg runs on two, [0,3)
// and [3,6). Device 0 fetches [2,3) from device 1 in [200, 600], device 1 [4,6) from device 2 in
// [200, 1000]: three samples more take 300 ns. The other readers stay where the slices are, but on
// a device that waits they come first: 200 to 600.
TEST(Reshard, FromThreeSlicesToTwo) {
  Fan fan(100);
  const Strategy strategy = fan.strategy(on({0, 1, 2}), {on({0, 1}), on({0, 1, 2}), on({0, 1, 2})});
  const OpId neg = fan.readers[0];
  Known known(std::move(fan.make).build(), known_cluster({{}, {}, {}}), AllOps(), 6);
  const SimResult& result = known.run(strategy);
  EXPECT_EQ(known.start(known.moved(TaskKind::kTransfer, fan.made, 1, 0)), 200);
  EXPECT_EQ(known.end(known.moved(TaskKind::kTransfer, fan.made, 1, 0)), 600);
  EXPECT_EQ(known.start(known.moved(TaskKind::kTransfer, fan.made, 2, 1)), 200);
  EXPECT_EQ(known.end(known.moved(TaskKind::kTransfer, fan.made, 2, 1)), 1000);
  EXPECT_EQ(known.start(known.compute(neg, 0)), 600);
  EXPECT_EQ(known.start(known.compute(neg, 1)), 1000);
  EXPECT_EQ(result.step, 1300);
  EXPECT_EQ(known.moved(TaskKind::kTransfer, fan.made, 0, 1), TaskId());
}

// Three readers on device 1 of what device 0 makes: one transfer of 6·400 B in [600, 3000], then
// 600 ns each.
TEST(Fetch, ManyConsumersOnOneDeviceShareOneTransfer) {
  Fan fan(100);
  const Strategy strategy = fan.strategy(on({0}), {on({1}), on({1}), on({1})});
  Known known(std::move(fan.make).build(), known_cluster({{}, {}}), AllOps(), 6);
  const SimResult& result = known.run(strategy);
  EXPECT_EQ(known.end(known.moved(TaskKind::kTransfer, fan.made, 0, 1)), 3000);
  EXPECT_EQ(known.plan().task_count(), 5u);
  EXPECT_EQ(result.step, 3000 + 3 * 600);
}

}  // namespace
}  // namespace heterog::sim

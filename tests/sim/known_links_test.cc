// Contention for links worked out on paper: a shared NIC, cards of two speeds, collectives among
// small transfers, a ring over machines.
#include <gtest/gtest.h>

#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/known_problems.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::PlanBuilder;
using compiler::TaskKind;
using decide::OrderPolicy;
using decide::Strategy;
using decide::SyncMethod;

// Two inputs are each doubled on one device and read on another; every op takes 100 ns a sample.
struct Pair {
  Pair() : make("pair") {
    using graph::tensor_value;
    for (std::int64_t width : {100, 50}) {
      const support::GraphMaker::Shape shape = {support::kB, support::n(width)};
      const TensorId x = make.input("x" + std::to_string(width), shape);
      made.push_back(make.op("aten.relu.default", {tensor_value(x)}, shape));
      readers.push_back(
          make.maker(make.op("aten.neg.default", {tensor_value(made.back())}, shape)));
    }
  }
  // Makers first, then readers.
  Strategy strategy(const std::vector<std::size_t>& devices) const {
    Strategy strategy;
    strategy.unit_of_op.assign(4, UnitId());
    for (std::size_t i = 0; i < 2; ++i) {
      strategy.unit_of_op[make.maker(made[i])] = strategy.units.push_back(on({devices[i]}));
      strategy.unit_of_op[readers[i]] = strategy.units.push_back(on({devices[2 + i]}));
    }
    return strategy;
  }
  support::GraphMaker make;
  std::vector<TensorId> made;
  std::vector<OpId> readers;
};

class TenSamples final : public cost::CostModel {
 public:
  double seconds(const graph::ModelGraph&, OpId, std::int64_t samples,
                 const cluster::DeviceType&) const override {
    return (static_cast<double>(10 * samples) - 0.5) * 1e-9;
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }
};

// GPUs 0 and 1 of machine a send to b and to c: the transfers share a's NIC and nothing else. Ten
// samples of 400 and 200 B, ready at 100: the longer one ranks higher, [100, 4100], the other
// [4100, 6100]; then 100 ns of reading.
TEST(Links, TransfersThatShareOnlyANicFollowEachOther) {
  Pair pair;
  const Strategy strategy = pair.strategy({0, 1, 2, 3});
  Known known(std::move(pair.make).build(), known_cluster({{{"fast", "fast"}}, {}, {}}),
              TenSamples(), 10);
  const SimResult& result = known.run(strategy);
  EXPECT_EQ(known.start(known.moved(TaskKind::kTransfer, pair.made[0], 0, 2)), 100);
  EXPECT_EQ(known.start(known.moved(TaskKind::kTransfer, pair.made[1], 1, 3)), 4100);
  EXPECT_EQ(result.step, 6200);
}

// As before, but into different machines from different ones: nothing is shared.
TEST(Links, TransfersThatShareNothingOverlap) {
  Pair pair;
  const Strategy strategy = pair.strategy({0, 1, 2, 3});
  Known known(std::move(pair.make).build(), known_cluster({{}, {}, {}, {}}), TenSamples(), 10);
  EXPECT_EQ(known.run(strategy).step, 100 + 4000 + 100);
  EXPECT_EQ(known.start(known.moved(TaskKind::kTransfer, pair.made[1], 1, 3)), 100);
}

// A card of 12.5 B/ns (100 Gb/s) sends 4000 B to one of 6.25 (50 Gb/s): 640 ns, but the faster card
// is busy for 320 of them. Then it sends 2000 B to another of its kind: [420, 580], while the first
// goes on to 740.
TEST(Links, AFastCardIsFreeBeforeTheSlowOneHasReceived) {
  Pair pair;
  const Strategy strategy = pair.strategy({0, 0, 1, 2});
  Known known(std::move(pair.make).build(),
              known_cluster({{.nic = 12.5}, {.nic = 6.25}, {.nic = 12.5}}), TenSamples(), 10);
  // Both ops run on device 0, the one of the longer transfer first: 100, 200.
  const SimResult& result = known.run(strategy);
  const TaskId slow = known.moved(TaskKind::kTransfer, pair.made[0], 0, 1);
  const TaskId fast = known.moved(TaskKind::kTransfer, pair.made[1], 0, 2);
  EXPECT_EQ(known.start(slow), 100);
  EXPECT_EQ(known.end(slow), 740);
  EXPECT_EQ(known.start(fast), 420);
  EXPECT_EQ(known.end(fast), 580);
  EXPECT_EQ(result.step, 840);
}

// 4000 and 2000 B through connections of 0.5 B/ns, while a card sends 1 B/ns. To one device they
// take turns, [100, 8100], [8100, 12100]; to two of them the second waits for the card alone,
// [4100, 8100].
TEST(Links, WhatTwoDevicesSendEachOtherTakesTurnsOnTheirConnection) {
  for (const bool one : {true, false}) {
    Pair pair;
    const Strategy strategy = pair.strategy({0, 0, 1, one ? 1u : 2u});
    Known known(std::move(pair.make).build(), known_cluster({{}, {}, {}}, 0.5), TenSamples(), 10);
    known.run(strategy);
    const TaskId first = known.moved(TaskKind::kTransfer, pair.made[0], 0, 1);
    const TaskId second = known.moved(TaskKind::kTransfer, pair.made[1], 0, one ? 1 : 2);
    EXPECT_EQ(known.start(first), 100);
    EXPECT_EQ(known.end(first), 8100);
    EXPECT_EQ(known.start(second), one ? 8100 : 4100);
    EXPECT_EQ(known.end(second), one ? 12100 : 8100);
  }
}

// ---- a collective among small transfers ----

// A collective of 4 ns over four links, ready at 1, whose result is worked on for 1000: its rank is
// the highest. Small transfers of 2 ns each keep link 0 busy in [0, 2), [2, 4) … and link 1 in
// [1, 3), [3, 5) …: whenever one link is free the other is not, for `count` transfers on each.
struct Starvation {
  Plan plan;
  TaskId collective;
};

Starvation starvation(std::size_t count) {
  PlanBuilder builder(2, 4);
  builder.plan().batch = 1;
  std::size_t op = 0;
  const auto add = [&](TaskKind kind, std::size_t device, Nanoseconds duration) {
    PlanBuilder::Task task;
    task.kind = kind;
    task.op = OpId(op++);
    task.device = DeviceId(device);
    task.end = 1;
    task.duration = duration;
    return builder.add_task(task);
  };
  const auto compute = [&](std::size_t device, Nanoseconds duration) {
    const TaskId task = add(TaskKind::kCompute, device, duration);
    builder.hold(task, {builder.plan().compute_stream(DeviceId(device)), duration});
    return task;
  };
  const auto small = [&](std::size_t link) {
    const TaskId task = add(TaskKind::kTransfer, 0, 2);
    builder.hold(task, {builder.plan().link(LinkId(link)), 2, 2});
    return task;
  };
  const TaskId gradient = compute(0, 1);
  const TaskId collective = add(TaskKind::kAllReduce, 0, 4);
  for (DeviceId device : id_range<DeviceId>(2)) {
    builder.hold(collective, {builder.plan().collective_channel(device), 4});
    builder.participate(collective, device);
  }
  for (LinkId link : id_range<LinkId>(4)) {
    builder.hold(collective, {builder.plan().link(link), 4, 4});
  }
  builder.depend(gradient, collective);
  builder.depend(collective, compute(0, 1000));
  // Device 1 computes 1 ns at a time; its n-th result is sent over link n mod 2 at n.
  small(0);
  TaskId tick;
  for (std::size_t n = 1; n < 2 * count; ++n) {
    const TaskId next = compute(1, 1);
    if (tick.valid()) builder.depend(tick, next);
    tick = next;
    builder.depend(tick, small(n % 2));
  }
  Starvation result{std::move(builder).finish(), collective};
  result.plan.static_memory.assign(2, {});
  result.plan.capacity.assign(2, 1);
  compiler::set_ranks(result.plan);
  return result;
}

// It starts after the last small one: link 1's, which starts at 2·count − 1.
TEST(Links, ACollectiveStarvesUnderRank) {
  for (std::size_t count : {1, 5, 50}) {
    const Starvation step = starvation(count);
    EXPECT_EQ(step.plan.priority[step.collective], 1u);  // after the gradient that it needs
    EXPECT_EQ(simulate(step.plan, OrderPolicy::kRank).start[step.collective],
              static_cast<Nanoseconds>(2 * count + 1));
  }
}

// ---- collectives over machines ----

// One layer of 4·80² = 25600 B on two machines of four; ports move 10 B/ns and NICs 1. A ring of
// eight crosses each NIC once each way: 14/8·25600 = 44800 ns.
TEST(Links, ARingOverTwoMachinesOfFourCrossesEachNicOnce) {
  Backward model = backward_graph(1, 80);
  const std::vector<std::string> four(4, "fast");
  Known known(std::move(model.graph), known_cluster({{four}, {four}}),
              NamedOps("aten.sigmoid_backward.default", 100), 16);
  const SimResult& result =
      known.run(decide::uniform_strategy(known.problem(), on({0, 1, 2, 3, 4, 5, 6, 7})));
  const TaskId reduced = known.reduced(model.layers[0].weight_gradient);
  ASSERT_TRUE(reduced.valid());
  EXPECT_EQ(known.start(reduced), 200);
  EXPECT_EQ(known.end(reduced), 200 + 44800);
  EXPECT_EQ(result.step, 45000);
  const auto bytes = [&](const std::string& name) -> Bytes {
    for (LinkId link : id_range<LinkId>(known.problem().cluster->link_count())) {
      if (known.problem().cluster->link(link).name == name) return result.link_bytes[link];
    }
    return -1;
  };
  for (const char* nic : {"a/nic.out", "a/nic.in", "b/nic.out", "b/nic.in"}) {
    EXPECT_EQ(bytes(nic), 44800) << nic;
  }
  // 3 → 4 and 7 → 0 leave their machines, so the ports at these ends are free.
  EXPECT_EQ(bytes("a/gpu0.out"), 44800);
  EXPECT_EQ(bytes("a/gpu0.in"), 0);
  EXPECT_EQ(bytes("b/gpu3.out"), 0);
  EXPECT_EQ(bytes("b/gpu1.in"), 44800);
}

// Three devices, one of half the speed: they exchange 900 B, 2·900 over each NIC, from when the
// last one is ready.
TEST(Links, ACollectiveWaitsForOneStraggler) {
  for (std::size_t straggler : {0, 1, 2}) {
    std::vector<KnownMachine> machines(3);
    machines[straggler].devices = {"slow"};
    Backward model = backward_graph(1, 15);
    Known known(std::move(model.graph), known_cluster(machines),
                NamedOps("aten.sigmoid_backward.default", 100), 30);
    const SimResult& result = known.run(decide::uniform_strategy(known.problem(), on({0, 1, 2})));
    const TaskId reduced = known.reduced(model.layers[0].weight_gradient);
    EXPECT_EQ(known.start(reduced), 2000);
    EXPECT_EQ(known.end(reduced), 3800);
    EXPECT_EQ(result.step, 3800);
  }
}

}  // namespace
}  // namespace heterog::sim

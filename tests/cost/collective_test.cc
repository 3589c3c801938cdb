// All-reduce and transfer times, each derived by hand beside its check.
#include "cost/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/builders.h"

namespace heterog::cost {
namespace {

using cluster::Cluster;
using cluster::ClusterBuilder;
using cluster::FabricSpec;
using cluster::MachineSpec;
using cluster::test_machine;

// Rates of 1 B/ns are 1e9 B/s, so that times below are whole nanoseconds.
MachineSpec machine(const std::string& name, std::size_t devices, double port, double nic) {
  MachineSpec spec = test_machine(name, devices);
  spec.fabric.port_bytes_per_second = port * 1e9;
  spec.fabric.latency_seconds = 10e-9;
  spec.nic = {nic * 1e9, 20e-9};
  return spec;
}

Cluster build(std::vector<MachineSpec> specs, double cap = 0) {
  ClusterBuilder builder("test");
  for (MachineSpec& spec : specs) builder.add_machine(std::move(spec));
  builder.set_network({60e-9, cap});
  return std::move(builder).build("test");
}

std::vector<DeviceId> devices(std::initializer_list<std::size_t> values) {
  std::vector<DeviceId> ids;
  for (std::size_t value : values) ids.emplace_back(value);
  return ids;
}

Nanoseconds held(const Cluster& c, const CollectiveCost& cost, const std::string& name) {
  for (const auto& [link, time] : cost.links) {
    if (c.link(link).name == name) return time;
  }
  return -1;
}

TEST(Ring, FormulaOfPatarasukAndYuan) {
  // n = 2: 2·1/2 · 1000/10 + 2·1 · 3 = 106.
  EXPECT_DOUBLE_EQ(ring_seconds(2, 1000, 10, 3), 106);
  // n = 4: 2·3/4 · 1000/10 + 2·3 · 3 = 168.
  EXPECT_DOUBLE_EQ(ring_seconds(4, 1000, 10, 3), 168);
  // n = 8, no latency: 14/8 · 100.
  EXPECT_DOUBLE_EQ(ring_seconds(8, 1000, 10, 0), 175);
}

TEST(AllReduce, RingInOneMachine) {
  const Cluster c = build({machine("m", 4, 2, 1)});
  const auto cost = all_reduce_cost(c, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kRing);
  // 6/4 · 8000 B / 2 B/ns = 6000, and 6 steps of 10 ns.
  EXPECT_EQ(cost.duration, 6060);
  // Four ports in each direction, each held for the 6000 ns of its bytes.
  EXPECT_EQ(cost.links.size(), 8u);
  EXPECT_EQ(held(c, cost, "m/gpu2.out"), 6000);
  EXPECT_EQ(held(c, cost, "m/gpu0.in"), 6000);
}

TEST(AllReduce, RingAcrossMachinesCrossesEachNicOnce) {
  const Cluster c = build({machine("a", 2, 10, 1), machine("b", 2, 10, 2)});
  // Any order of the set gives the same ring: 0 → 1 ⇒ 2 → 3 ⇒ 0.
  const auto cost = all_reduce_cost(c, devices({3, 0, 2, 1}), 4000, AllReduceAlgorithm::kRing);
  // The slowest link is a's NIC: 6/4 · 4000 / 1 = 6000; six steps of 20 + 60 + 20 ns.
  EXPECT_EQ(cost.duration, 6000 + 6 * 100);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 6000);
  EXPECT_EQ(held(c, cost, "a/nic.in"), 6000);
  EXPECT_EQ(held(c, cost, "b/nic.out"), 3000);
  // Hops inside: 0 → 1 and 2 → 3, 6000 B over 10 B/ns.
  EXPECT_EQ(held(c, cost, "a/gpu0.out"), 600);
  EXPECT_EQ(held(c, cost, "a/gpu1.in"), 600);
  EXPECT_EQ(held(c, cost, "a/gpu1.out"), -1);
  EXPECT_EQ(cost.links.size(), 4u + 4u);
  for (std::size_t i = 1; i < cost.links.size(); ++i) {
    EXPECT_LT(cost.links[i - 1].first, cost.links[i].first);
  }
}

TEST(AllReduce, HopsShareABus) {
  MachineSpec spec = machine("m", 4, 2, 1);
  spec.fabric.kind = FabricSpec::Kind::kBus;
  const Cluster c = build({spec});
  const auto cost = all_reduce_cost(c, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kRing);
  // Four hops of 12000 B each over one bus of 2 B/ns.
  EXPECT_EQ(cost.duration, 24000 + 60);
  ASSERT_EQ(cost.links.size(), 1u);
  EXPECT_EQ(cost.links[0].second, 24000);
}

TEST(AllReduce, RingCrossesTheSocketsOnceEachWay) {
  MachineSpec spec = machine("m", 4, 4, 1);
  spec.fabric.kind = FabricSpec::Kind::kSockets;
  spec.fabric.socket_bytes_per_second = 1e9;
  const Cluster c = build({spec});
  const auto cost = all_reduce_cost(c, devices({0, 1, 2, 3}), 4000, AllReduceAlgorithm::kRing);
  // 0 → 1 → 2 → 3 → 0: 1 → 2 goes up, 3 → 0 down, each 6000 B at 1 B/ns.
  EXPECT_EQ(cost.duration, 6000 + 60);
  EXPECT_EQ(held(c, cost, "m/socket.up"), 6000);
  EXPECT_EQ(held(c, cost, "m/socket.down"), 6000);
  EXPECT_EQ(held(c, cost, "m/gpu1.out"), 1500);
}

TEST(AllReduce, HierarchicalReducesInsideFirst) {
  const Cluster c = build({machine("a", 3, 10, 1), machine("b", 2, 5, 2)});
  const auto cost =
      all_reduce_cost(c, devices({0, 1, 2, 3, 4}), 4000, AllReduceAlgorithm::kHierarchical);
  // Reduce inside, at the same time: a is a chain of two hops, 4000 / 10 + 2·10 = 420; b has one,
  // 4000 / 5 + 10 = 810. Ring of the leaders 0 and 3: 2·1/2 · 4000 / 1 + 2·100 = 4200. Broadcast as
  // the reduction.
  EXPECT_EQ(cost.duration, 810 + 4200 + 810);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 4000);
  EXPECT_EQ(held(c, cost, "b/nic.out"), 2000);
  // 2 → 1 → 0 and back.
  EXPECT_EQ(held(c, cost, "a/gpu2.out"), 400);
  EXPECT_EQ(held(c, cost, "a/gpu1.in"), 800);
  EXPECT_EQ(held(c, cost, "a/gpu0.out"), 400);
}

TEST(AllReduce, HierarchicalInOneMachineIsReduceAndBroadcast) {
  const Cluster c = build({machine("m", 2, 2, 1)});
  const auto cost = all_reduce_cost(c, devices({0, 1}), 1000, AllReduceAlgorithm::kHierarchical);
  EXPECT_EQ(cost.duration, 2 * (500 + 10));
}

TEST(AllReduce, TheFasterOneIsTakenAndTiesAreRings) {
  const Cluster c = build({machine("a", 4, 100, 1), machine("b", 4, 100, 1)});
  const auto all = devices({0, 1, 2, 3, 4, 5, 6, 7});
  // Large: the ring moves 14/8 · B over a NIC, the leaders' ring 2/2 · B and 2·B/100 inside.
  EXPECT_EQ(all_reduce_cost(c, all, 1000000).algorithm, AllReduceAlgorithm::kHierarchical);
  const Cluster slow = build({machine("a", 4, 1, 1), machine("b", 4, 1, 1)});
  // 1.75 · B against B + 2·B.
  EXPECT_EQ(all_reduce_cost(slow, all, 1000000).algorithm, AllReduceAlgorithm::kRing);
  // Small: 14 steps of 100 ns against 2 · 3 · 10 + 2 · 100.
  EXPECT_EQ(all_reduce_cost(slow, all, 1).algorithm, AllReduceAlgorithm::kHierarchical);
  // One device in each machine: the same ring, so a tie.
  EXPECT_EQ(all_reduce_cost(c, devices({0, 4}), 1000).algorithm, AllReduceAlgorithm::kRing);
  EXPECT_EQ(all_reduce_cost(c, devices({0, 4}), 1000, AllReduceAlgorithm::kHierarchical).duration,
            all_reduce_cost(c, devices({0, 4}), 1000, AllReduceAlgorithm::kRing).duration);
}

TEST(AllReduce, ACappedFlowTakesLongerButHoldsNoLinkLonger) {
  const Cluster c = build({machine("a", 1, 10, 2), machine("b", 1, 10, 2)}, 0.5e9);
  const auto cost = all_reduce_cost(c, devices({0, 1}), 1000);
  // 1000 B a hop at 0.5 B/ns, two steps of 100 ns; the NICs are busy for 1000 / 2.
  EXPECT_EQ(cost.duration, 2000 + 200);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 500);
}

TEST(AllReduce, ShapeGivesTheSameAsTheDirectCall) {
  const Cluster c = build({machine("a", 3, 10, 1), machine("b", 2, 5, 2)});
  const auto set = devices({1, 2, 3, 4});
  for (auto algorithm : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kHierarchical}) {
    const AllReduceShape shape = all_reduce_shape(c, set, algorithm);
    for (Bytes bytes : {Bytes{0}, Bytes{1}, Bytes{12345}}) {
      const auto direct = all_reduce_cost(c, set, bytes, algorithm);
      EXPECT_EQ(collective_cost(shape, bytes).duration, direct.duration);
      EXPECT_EQ(collective_cost(shape, bytes).links, direct.links);
    }
  }
}

// A ring of four: launched once, 1000 ns, and six steps of 10. Hierarchical, in two machines of
// two: three phases are launched, and their steps are 1, 2 and 1.
TEST(AllReduce, EachPhaseIsLaunchedOnce) {
  MachineSpec spec = machine("m", 4, 2, 1);
  spec.fabric.launch_seconds = 1000e-9;
  const Cluster one = build({spec});
  const auto cost = all_reduce_cost(one, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kRing);
  EXPECT_EQ(cost.duration, 1000 + 6 * 10 + 6000);
  EXPECT_EQ(held(one, cost, "m/gpu0.in"), 6000);  // nothing is held while it is launched
  MachineSpec a = machine("a", 2, 2, 1), b = machine("b", 2, 2, 1);
  a.fabric.launch_seconds = b.fabric.launch_seconds = 1000e-9;
  a.nic.launch_seconds = 3000e-9;
  b.nic.launch_seconds = 2000e-9;
  const Cluster two = build({a, b});
  EXPECT_EQ(
      all_reduce_cost(two, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kHierarchical).duration,
      2 * (1000 + 10 + 4000) + (3000 + 2 * 100 + 8000));
}

// Two devices in each of two machines gather 4000 B: every hop of the ring carries 3/4 of them in
// three steps.
TEST(AllGather, IsOnePassOfTheRing) {
  const Cluster c = build({machine("a", 2, 10, 1), machine("b", 2, 10, 2)});
  const auto cost = collective_cost(all_gather_shape(c, devices({3, 0, 2, 1})), 4000);
  EXPECT_EQ(cost.duration, 3000 + 3 * 100);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 3000);
  EXPECT_EQ(held(c, cost, "b/nic.in"), 1500);
  EXPECT_EQ(held(c, cost, "a/gpu0.out"), 300);
}

TEST(Transfer, IsLaunchedAndPaysTheHop) {
  MachineSpec a = machine("a", 2, 10, 4), b = machine("b", 1, 10, 2);
  a.fabric.launch_seconds = 1000e-9;
  a.nic.launch_seconds = 3000e-9;
  const Cluster c = build({a, b});
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(1)), 1000), 1000 + 10 + 100);
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(2)), 1000), 3000 + 100 + 500);
}

TEST(Transfer, SlowestLinkThenLatency) {
  const Cluster c = build({machine("a", 2, 10, 4), machine("b", 1, 10, 2)});
  // Inside: 1000 / 10 + 10.
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(1)), 1000), 110);
  // Between: the receiver's NIC is slower, 1000 / 2 + 20 + 60 + 20.
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(2)), 1000), 600);
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(2)), 0), 100);
  const Cluster capped = build({machine("a", 1, 10, 4), machine("b", 1, 10, 2)}, 1e9);
  EXPECT_EQ(transfer_duration(capped, capped.route(DeviceId(0), DeviceId(1)), 1000), 1100);
}

}  // namespace
}  // namespace heterog::cost

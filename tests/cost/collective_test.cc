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

Cluster build(std::vector<MachineSpec> specs, double cap = 0, std::int64_t flows = 1) {
  ClusterBuilder builder("test");
  for (MachineSpec& spec : specs) builder.add_machine(std::move(spec));
  builder.set_network({.latency_seconds = 60e-9, .flow_cap_bytes_per_second = cap, .flows = flows});
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

// Five devices: 1 and 3 send to 0 and 2, then 2 to 0, then 4 to 0, and back.
TEST(AllReduce, ATreeTakesTwoStepsALevel) {
  const Cluster c = build({machine("a", 3, 10, 1), machine("b", 2, 5, 2)});
  const auto cost = all_reduce_cost(c, devices({4, 0, 1, 2, 3}), 4000, AllReduceAlgorithm::kTree);
  // Reach 1: 1 → 0 inside, 400 ns and a latency of 10; 3 → 2 between machines, 4000 / 1 and 100:
  // the slower latency and the slower rate count. Reach 2: 2 → 0, inside. Reach 4: 4 → 0, between.
  EXPECT_EQ(cost.duration, 2 * ((4000 + 100) + (400 + 10) + (4000 + 100)));
  // 3 and 4 are b's: what they send crosses both NICs, two messages each way.
  EXPECT_EQ(held(c, cost, "a/nic.in"), 8000);
  EXPECT_EQ(held(c, cost, "b/nic.out"), 4000);
  EXPECT_EQ(held(c, cost, "a/gpu0.in"), 800);
  EXPECT_EQ(held(c, cost, "a/gpu1.out"), 400);
  EXPECT_EQ(held(c, cost, "b/gpu0.out"), -1);
}

// Three devices, two of them behind one NIC, which carries two messages each way.
TEST(AllReduce, AnExchangeIsOneStepOfAllBytes) {
  const Cluster c = build({machine("a", 2, 10, 1), machine("b", 1, 10, 4)});
  const auto cost = all_reduce_cost(c, devices({0, 1, 2}), 1000, AllReduceAlgorithm::kExchange);
  EXPECT_EQ(cost.duration, 2000 + 100);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 2000);
  EXPECT_EQ(held(c, cost, "b/nic.in"), 500);
  EXPECT_EQ(held(c, cost, "a/gpu0.out"), 100);
}

TEST(AllReduce, SizeAndMembersSayWhichAlgorithmRuns) {
  const auto algorithm = [](std::size_t members, Bytes bytes) {
    return all_reduce_algorithm(members, bytes);
  };
  EXPECT_EQ(algorithm(2, 1 << 20), AllReduceAlgorithm::kExchange);
  EXPECT_EQ(algorithm(2, (1 << 20) + 1), AllReduceAlgorithm::kRing);
  EXPECT_EQ(algorithm(4, 32 << 10), AllReduceAlgorithm::kExchange);
  EXPECT_EQ(algorithm(4, (32 << 10) + 1), AllReduceAlgorithm::kRing);
  EXPECT_EQ(algorithm(5, 10 << 10), AllReduceAlgorithm::kTree);
  EXPECT_EQ(algorithm(5, (10 << 10) + 1), AllReduceAlgorithm::kRing);
  EXPECT_EQ(algorithm(32, 64 << 10), AllReduceAlgorithm::kTree);
  EXPECT_EQ(algorithm(32, 1 << 20), AllReduceAlgorithm::kRing);
}

// Where each machine has one device, on 10 GbE: whichever runs is at most a fifth slower than the
// best of the three.
TEST(AllReduce, TheAlgorithmThatRunsIsNearlyTheFastest) {
  for (std::size_t count : {2, 3, 4, 5, 6, 8, 12, 16, 32}) {
    std::vector<MachineSpec> specs;
    std::vector<DeviceId> all;
    for (std::size_t i = 0; i < count; ++i) {
      specs.push_back(machine(std::to_string(i), 1, 10, 1.15));
      specs.back().nic.latency_seconds = 5.5e-6;
      all.emplace_back(i);
    }
    const Cluster c = build(std::move(specs));
    for (Bytes bytes = 4; bytes < 1 << 24; bytes *= 4) {
      const auto best =
          std::min({all_reduce_cost(c, all, bytes, AllReduceAlgorithm::kRing).duration,
                    all_reduce_cost(c, all, bytes, AllReduceAlgorithm::kTree).duration,
                    all_reduce_cost(c, all, bytes, AllReduceAlgorithm::kExchange).duration});
      const CollectiveCost runs = all_reduce_cost(c, all, bytes);
      EXPECT_EQ(runs.algorithm, all_reduce_algorithm(count, bytes));
      // Over four members a tree takes the place of the exchange, whose messages are many.
      if (count <= 4) {
        EXPECT_LE(static_cast<double>(runs.duration), 1.2 * static_cast<double>(best))
            << count << " devices, " << bytes << " bytes";
      } else {
        const auto ring = all_reduce_cost(c, all, bytes, AllReduceAlgorithm::kRing).duration;
        const auto tree = all_reduce_cost(c, all, bytes, AllReduceAlgorithm::kTree).duration;
        EXPECT_LE(static_cast<double>(runs.duration),
                  1.2 * static_cast<double>(std::min(ring, tree)))
            << count << " devices, " << bytes << " bytes";
      }
    }
  }
}

TEST(AllReduce, ACappedFlowTakesLongerButHoldsNoLinkLonger) {
  const Cluster c = build({machine("a", 1, 10, 2), machine("b", 1, 10, 2)}, 0.5e9);
  const auto cost = all_reduce_cost(c, devices({0, 1}), 1000);
  // 1000 B at 0.5 B/ns in one step of 100 ns; the NICs are busy for 1000 / 2.
  EXPECT_EQ(cost.duration, 2000 + 100);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 500);
}

// Of more than a MiB. Together they get no more than the links have, and hold these no longer.
TEST(AllReduce, EachFlowHasItsCap) {
  constexpr Bytes kLarge = cluster::kFlowBytes + 1000, kSmall = cluster::kFlowBytes;
  const auto seconds = [](std::int64_t flows, Bytes bytes) {
    const Cluster c = build({machine("a", 1, 10, 2), machine("b", 1, 10, 2)}, 0.5e9, flows);
    const auto cost = all_reduce_cost(c, devices({0, 1}), bytes, AllReduceAlgorithm::kRing);
    EXPECT_EQ(held(c, cost, "a/nic.out"), bytes / 2);
    const cluster::Route& route = c.route(DeviceId(0), DeviceId(1));
    // A transfer takes one step of a ring's two, and all bytes go one way.
    EXPECT_EQ(transfer_duration(c, route, bytes) + 100, cost.duration);
    EXPECT_NEAR(all_gather_shape(c, devices({0, 1})).seconds(bytes) * 2e9,
                static_cast<double>(cost.duration), 1);
    return cost.duration;
  };
  EXPECT_EQ(seconds(1, kLarge), kLarge * 2 + 200);
  EXPECT_EQ(seconds(2, kLarge), kLarge + 200);
  EXPECT_EQ(seconds(4, kLarge), kLarge / 2 + 200);
  EXPECT_EQ(seconds(16, kLarge), kLarge / 2 + 200);
  EXPECT_EQ(seconds(16, kSmall), kSmall * 2 + 200);
}

// A cloud gives each GPU 1.5 B/ns of a NIC of 5: two of each machine get 3, four 5.
TEST(AllReduce, RingsOfSeveralGpusShareACloudsNic) {
  MachineSpec a = machine("a", 4, 100, 5), b = machine("b", 4, 100, 5);
  a.nic.device_bytes_per_second = b.nic.device_bytes_per_second = 1.5e9;
  const Cluster c = build({a, b});
  const auto seconds = [&](std::vector<DeviceId> set) {
    return all_reduce_cost(c, set, 30000, AllReduceAlgorithm::kRing).duration;
  };
  EXPECT_EQ(seconds(devices({0, 4})), 30000 / 1.5 + 2 * 100);
  EXPECT_EQ(seconds(devices({0, 1, 4, 5})), 45000 / 3 + 6 * 100);
  EXPECT_EQ(seconds(devices({0, 1, 2, 4})), 45000 / 1.5 + 6 * 100);  // the other has one
  EXPECT_EQ(seconds(devices({0, 1, 2, 3, 4, 5, 6, 7})), 52500 / 5 + 14 * 100);
  EXPECT_EQ(transfer_duration(c, c.route(DeviceId(0), DeviceId(4)), 3000), 2000 + 100);
}

// A port of 4 B/ns before a NIC of 10.
TEST(AllReduce, ANicIsNoFasterThanWhatFeedsIt) {
  MachineSpec a = machine("a", 2, 4, 10), b = machine("b", 2, 4, 10);
  a.fabric.feeds_nic = b.fabric.feeds_nic = true;
  const Cluster c = build({a, b});
  const auto cost = all_reduce_cost(c, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kRing);
  EXPECT_EQ(cost.duration, 12000 / 4 + 6 * 100);
  EXPECT_EQ(held(c, cost, "a/nic.out"), 1200);
  EXPECT_EQ(held(c, cost, "a/gpu1.out"), 3000);
}

TEST(AllReduce, ShapeGivesTheSameAsTheDirectCall) {
  const Cluster c = build({machine("a", 3, 10, 1), machine("b", 2, 5, 2)});
  const auto set = devices({1, 2, 3, 4});
  for (auto algorithm :
       {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kTree, AllReduceAlgorithm::kExchange}) {
    const AllReduceShape shape = all_reduce_shape(c, set, algorithm);
    for (Bytes bytes : {Bytes{0}, Bytes{1}, Bytes{12345}}) {
      const auto direct = all_reduce_cost(c, set, bytes, algorithm);
      EXPECT_EQ(collective_cost(shape, bytes).duration, direct.duration);
      EXPECT_EQ(collective_cost(shape, bytes).links, direct.links);
    }
  }
}

// A ring of four: launched once, 1000 ns, and six steps of 10. A tree over two machines of two:
// once too, at the pace of the slowest launch; steps of 10, of 100, and the same back.
TEST(AllReduce, IsLaunchedOnce) {
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
  EXPECT_EQ(all_reduce_cost(two, devices({0, 1, 2, 3}), 8000, AllReduceAlgorithm::kTree).duration,
            3000 + 2 * (10 + 4000) + 2 * (100 + 8000));
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

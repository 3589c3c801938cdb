// Links and routes that the builder derives, and what it refuses.
#include "cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "cluster/builders.h"

namespace heterog::cluster {
namespace {

std::vector<std::string> route_names(const Cluster& c, std::size_t from, std::size_t to) {
  std::vector<std::string> names;
  for (LinkId link : c.route(DeviceId(from), DeviceId(to)).links) {
    names.push_back(c.link(link).name);
  }
  return names;
}

Cluster build(std::vector<MachineSpec> specs, NetworkSpec network = {5e-9, 0}) {
  ClusterBuilder builder("test");
  for (MachineSpec& spec : specs) builder.add_machine(std::move(spec));
  builder.set_network(network);
  return std::move(builder).build("test.json");
}

std::string refusal(std::vector<MachineSpec> specs, NetworkSpec network = {}) {
  try {
    build(std::move(specs), network);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cluster, NumbersDevicesMachineByMachine) {
  const Cluster c = build({test_machine("a", 2), test_machine("b", 1, test_type("slow"))});
  ASSERT_EQ(c.device_count(), 3u);
  EXPECT_EQ(c.device(DeviceId(0)).name, "a/gpu0");
  EXPECT_EQ(c.device(DeviceId(1)).name, "a/gpu1");
  EXPECT_EQ(c.device(DeviceId(2)).name, "b/gpu0");
  EXPECT_EQ(c.type_count(), 2u);
  EXPECT_EQ(c.type_of(DeviceId(1)).name, "fast");
  EXPECT_EQ(c.type_of(DeviceId(2)).name, "slow");
  EXPECT_THAT(c.machine(MachineId(0)).devices, ElementsAre(DeviceId(0), DeviceId(1)));
  EXPECT_TRUE(c.same_machine(DeviceId(0), DeviceId(1)));
  EXPECT_FALSE(c.same_machine(DeviceId(1), DeviceId(2)));
}

// Behind all devices, types and links, which keep their numbers.
TEST(Cluster, NumbersHostsThatServeBehindDevices) {
  const Cluster plain = build({test_machine("a", 2), test_machine("b", 1), test_machine("c", 2)});
  const Cluster c = build(
      {with_server(test_machine("a", 2)), test_machine("b", 1), with_server(test_machine("c", 2))});
  EXPECT_EQ(c.device_count(), 5u);
  ASSERT_EQ(c.place_count(), 7u);
  EXPECT_THAT(c.host_ids(), ElementsAre(DeviceId(5), DeviceId(6)));
  EXPECT_FALSE(c.is_host(DeviceId(4)));
  EXPECT_TRUE(c.is_host(DeviceId(5)));
  EXPECT_EQ(c.machine(MachineId(0)).host, DeviceId(5));
  EXPECT_FALSE(c.machine(MachineId(1)).host.valid());
  EXPECT_EQ(c.machine(MachineId(2)).host, DeviceId(6));
  EXPECT_THAT(c.machine(MachineId(2)).devices, ElementsAre(DeviceId(3), DeviceId(4)));
  EXPECT_EQ(c.device(DeviceId(6)).name, "c/host");
  EXPECT_EQ(c.device(DeviceId(6)).memory_bytes, 500);
  EXPECT_TRUE(c.same_machine(DeviceId(6), DeviceId(3)));
  EXPECT_EQ(c.type_of(DeviceId(6)).name, "processor");
  EXPECT_EQ(c.type_count(), 1u);
  EXPECT_EQ(c.place_type_count(), 2u);
  for (LinkId link : id_range<LinkId>(plain.link_count())) {
    EXPECT_EQ(c.link(link).name, plain.link(link).name);
  }
  EXPECT_EQ(c.link_count(), plain.link_count() + 4);  // a port each way of two hosts
  EXPECT_NE(c.hash(), plain.hash());
}

// A type that devices have too is one type.
TEST(Cluster, AHostOfTheDevicesTypeSharesIt) {
  const Cluster c = build({with_server(test_machine("a", 1), "fast2")});
  EXPECT_EQ(c.place_type_count(), 2u);
  MachineSpec same = test_machine("a", 2);
  same.server = test_type();
  same.host_memory_bytes = 1;
  EXPECT_EQ(build({same}).place_type_count(), 1u);
}

// Its devices reach the host over the fabric, others over the cards; sockets are not crossed, and
// what feeds a card does not lie before a host.
TEST(Cluster, RoutesOfHostsThatServe) {
  MachineSpec ports = test_machine("a", 2), bus = test_machine("b", 2),
              sockets = test_machine("c", 4), one = test_machine("d", 1);
  bus.fabric.kind = FabricSpec::Kind::kBus;
  sockets.fabric.kind = FabricSpec::Kind::kSockets;
  sockets.fabric.socket_bytes_per_second = 5;
  for (MachineSpec* spec : {&ports, &bus, &sockets}) spec->fabric.feeds_nic = true;
  const Cluster c =
      build({with_server(ports), with_server(bus), with_server(sockets), with_server(one)});
  // Devices: a 0, 1; b 2, 3; c 4 to 7; d 8; hosts 9 to 12.
  EXPECT_THAT(route_names(c, 1, 9), ElementsAre("a/gpu1.out", "a/host.in"));
  EXPECT_THAT(route_names(c, 9, 0), ElementsAre("a/host.out", "a/gpu0.in"));
  EXPECT_THAT(route_names(c, 2, 10), ElementsAre("b/bus"));
  EXPECT_THAT(route_names(c, 4, 11), ElementsAre("c/gpu0.out", "c/host.in"));
  EXPECT_THAT(route_names(c, 7, 11), ElementsAre("c/gpu3.out", "c/host.in"));
  EXPECT_THAT(route_names(c, 8, 12), ElementsAre("d/gpu0.out", "d/host.in"));
  EXPECT_THAT(route_names(c, 9, 10), ElementsAre("a/nic.out", "b/nic.in"));
  EXPECT_THAT(route_names(c, 1, 10), ElementsAre("a/gpu1.out", "a/nic.out", "b/nic.in"));
  EXPECT_THAT(route_names(c, 10, 2), ElementsAre("b/bus"));
  EXPECT_THAT(route_names(c, 10, 1), ElementsAre("b/nic.out", "a/nic.in", "a/gpu1.in"));
  EXPECT_EQ(c.link(c.route(DeviceId(1), DeviceId(9)).links[1]).bytes_per_second, 10);
  EXPECT_EQ(c.route(DeviceId(1), DeviceId(9)).latency, 1);
}

TEST(Cluster, PossibleServersAreHostsWhereAnyServe) {
  const std::vector<DeviceId> replicas = {DeviceId(0), DeviceId(1)};
  const Cluster without = build({test_machine("a", 2), test_machine("b", 2)});
  EXPECT_EQ(possible_servers(without, replicas), replicas);
  const Cluster c = build({test_machine("a", 2), with_server(test_machine("b", 2))});
  EXPECT_THAT(possible_servers(c, replicas), ElementsAre(DeviceId(4)));
}

TEST(Cluster, RefusesHostsThatCannotServe) {
  MachineSpec small = with_server(test_machine("a", 2));
  small.server->reserve_bytes = 500;
  EXPECT_THAT(refusal({small}), AllOf(HasSubstr("machine 'a'"), HasSubstr("host_memory_bytes 500"),
                                      HasSubstr("more than the 500 that processor keeps")));
  MachineSpec apart = with_server(test_machine("a", 1));
  apart.fabric.port_bytes_per_second = 0;
  EXPECT_THAT(refusal({apart}), HasSubstr("its devices and its host cannot reach each other"));
  EXPECT_THAT(refusal({with_server(test_machine("a", kMaxDevices))}),
              HasSubstr("1025 devices (and hosts that serve parameters)"));
}

TEST(Cluster, RoutesInsideAMachineUsePortsAndBetweenMachinesOnlyNics) {
  const Cluster c = build({test_machine("a", 2), test_machine("b", 1)}, {5e-9, 7});
  EXPECT_THAT(route_names(c, 0, 1), ElementsAre("a/gpu0.out", "a/gpu1.in"));
  EXPECT_THAT(route_names(c, 1, 0), ElementsAre("a/gpu1.out", "a/gpu0.in"));
  EXPECT_THAT(route_names(c, 1, 2), ElementsAre("a/nic.out", "b/nic.in", "a/gpu1 -> b/gpu0"));
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(1)).latency, 1);
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(1)).cap_bytes_per_second, 0);
  // Sender's NIC 3 ns + switch 5 ns + receiver's NIC 3 ns.
  EXPECT_EQ(c.route(DeviceId(1), DeviceId(2)).latency, 11);
  EXPECT_EQ(c.route(DeviceId(1), DeviceId(2)).cap_bytes_per_second, 7);
  // Two ports each way in a, none in b, which has one device; a NIC each way in both; capped
  // connections each way between b's device and both of a's.
  EXPECT_EQ(c.link_count(), 4u + 2u + 2u + 4u);
  EXPECT_EQ(c.link(c.route(DeviceId(1), DeviceId(2)).links[0]).bytes_per_second, 2);
  EXPECT_EQ(c.link(c.route(DeviceId(0), DeviceId(1)).links[0]).bytes_per_second, 10);
}

TEST(Cluster, AConnectionHasTheCapsOfAllItsFlows) {
  const Cluster c = build({test_machine("a", 1), test_machine("b", 1)},
                          {.flow_cap_bytes_per_second = 0.5, .flows = 3});
  const LinkId connection = c.route(DeviceId(0), DeviceId(1)).links.back();
  ASSERT_TRUE(c.is_connection(connection));
  EXPECT_FALSE(c.is_connection(c.route(DeviceId(0), DeviceId(1)).links.front()));
  EXPECT_EQ(c.link(connection).bytes_per_second, 1.5);
  // A faster one has faster flows.
  IdVector<LinkId, double> factors(c.link_count(), 1.0);
  factors[connection] = 2;
  const Cluster faster = with_scaled_links(c, factors);
  EXPECT_EQ(flow_cap(faster.route(DeviceId(0), DeviceId(1)), 10 * kFlowBytes), 3);
  EXPECT_EQ(flow_cap(faster.route(DeviceId(1), DeviceId(0)), 10 * kFlowBytes), 1.5);
  // Of more devices each pair would be a link.
  const Cluster large =
      build({test_machine("a", 200), test_machine("b", 57)}, {.flow_cap_bytes_per_second = 0.5});
  EXPECT_THAT(route_names(large, 0, 256), ElementsAre("a/nic.out", "b/nic.in"));
}

// A machine whose GPUs reach the NIC over the fabric: their ports, or the bus. The other's do not.
TEST(Cluster, WhatFeedsANicIsHeldToo) {
  MachineSpec ports = test_machine("a", 2), bus = test_machine("b", 2), one = test_machine("c", 1);
  ports.fabric.feeds_nic = bus.fabric.feeds_nic = one.fabric.feeds_nic = true;
  bus.fabric.kind = FabricSpec::Kind::kBus;
  const Cluster c = build({ports, bus, one, test_machine("d", 2)});
  EXPECT_THAT(route_names(c, 1, 2), ElementsAre("a/gpu1.out", "a/nic.out", "b/nic.in", "b/bus"));
  EXPECT_THAT(route_names(c, 3, 0), ElementsAre("b/bus", "b/nic.out", "a/nic.in", "a/gpu0.in"));
  EXPECT_THAT(route_names(c, 4, 0), ElementsAre("c/nic.out", "a/nic.in", "a/gpu0.in"));
  EXPECT_THAT(route_names(c, 5, 6), ElementsAre("d/gpu0.out", "d/gpu1.in"));
  EXPECT_THAT(route_names(c, 6, 1), ElementsAre("d/nic.out", "a/nic.in", "a/gpu1.in"));
}

TEST(Cluster, ADeviceMayGetLessThanTheNic) {
  MachineSpec cloud = test_machine("a", 2), slower = test_machine("b", 1);
  cloud.nic.device_bytes_per_second = 1.5;
  slower.nic.device_bytes_per_second = 0.5;
  const Cluster c = build({cloud, slower, test_machine("c", 1)});
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(2)).device_bytes_per_second, 0.5);
  EXPECT_EQ(c.route(DeviceId(3), DeviceId(1)).device_bytes_per_second, 1.5);
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(1)).device_bytes_per_second, 0);
}

TEST(Cluster, ServersMayHaveATransport) {
  const std::vector<MachineSpec> specs = {test_machine("a", 2), test_machine("b", 1)};
  const Cluster plain = build(specs);
  EXPECT_EQ(plain.route(DeviceId(0), DeviceId(2)).server_bytes_per_second, 0);
  EXPECT_EQ(plain.route(DeviceId(0), DeviceId(2)).server_latency, 11);
  const Cluster slow = build(specs, {5e-9, 0, ServerTransportSpec{1, 20e-9, 100e-9}});
  EXPECT_EQ(slow.route(DeviceId(0), DeviceId(2)).server_bytes_per_second, 1);
  EXPECT_EQ(slow.route(DeviceId(0), DeviceId(2)).server_latency, 145);
  EXPECT_EQ(slow.route(DeviceId(0), DeviceId(1)).server_bytes_per_second, 0);
  EXPECT_EQ(slow.route(DeviceId(0), DeviceId(1)).server_latency, 1);
  EXPECT_NE(plain.hash(), slow.hash());
  EXPECT_THAT(refusal(specs, {5e-9, 0, ServerTransportSpec{0, 0, 0}}),
              HasSubstr("network.parameter_servers"));
}

TEST(Cluster, BusIsOneLinkForBothDirections) {
  MachineSpec spec = test_machine("a", 3);
  spec.fabric.kind = FabricSpec::Kind::kBus;
  const Cluster c = build({spec});
  EXPECT_EQ(c.link_count(), 1u);  // one machine needs no NIC
  EXPECT_THAT(route_names(c, 0, 1), ElementsAre("a/bus"));
  EXPECT_THAT(route_names(c, 2, 0), ElementsAre("a/bus"));
}

TEST(Cluster, SocketsAddALinkBetweenTheHalves) {
  MachineSpec spec = test_machine("a", 5);
  spec.fabric.kind = FabricSpec::Kind::kSockets;
  spec.fabric.socket_bytes_per_second = 4;
  const Cluster c = build({spec});
  // The first half has the odd device: 0, 1, 2 | 3, 4.
  EXPECT_THAT(route_names(c, 0, 2), ElementsAre("a/gpu0.out", "a/gpu2.in"));
  EXPECT_THAT(route_names(c, 2, 3), ElementsAre("a/gpu2.out", "a/socket.up", "a/gpu3.in"));
  EXPECT_THAT(route_names(c, 4, 0), ElementsAre("a/gpu4.out", "a/socket.down", "a/gpu0.in"));
  EXPECT_EQ(c.link(c.route(DeviceId(4), DeviceId(0)).links[1]).bytes_per_second, 4);
}

TEST(Cluster, RoutesSurviveAMove) {
  Cluster first = build({test_machine("a", 2), test_machine("b", 2)});
  const Cluster second = std::move(first);
  EXPECT_THAT(route_names(second, 3, 2), ElementsAre("b/gpu1.out", "b/gpu0.in"));
}

TEST(Cluster, MemoryOfADeviceMayDifferFromItsType) {
  MachineSpec spec = test_machine("a", 2);
  spec.device_memory_bytes = {1000, 500};
  const Cluster c = build({spec});
  EXPECT_EQ(c.device(DeviceId(0)).memory_bytes, 1000);
  EXPECT_EQ(c.device(DeviceId(1)).memory_bytes, 500);
  EXPECT_EQ(c.type_of(DeviceId(1)).memory_bytes, 1000);
  EXPECT_EQ(c.type_count(), 1u);
}

TEST(Cluster, HashDependsOnWhatAPlanDependsOn) {
  const std::uint64_t base = build({test_machine("a", 2), test_machine("b", 1)}).hash();
  EXPECT_EQ(base, build({test_machine("a", 2), test_machine("b", 1)}).hash());
  MachineSpec changed = test_machine("b", 1);
  changed.nic.bytes_per_second = 3;
  EXPECT_NE(base, build({test_machine("a", 2), changed}).hash());
  changed = test_machine("b", 1);
  changed.nic.latency_seconds = 4e-9;
  EXPECT_NE(base, build({test_machine("a", 2), changed}).hash());
  changed = test_machine("b", 1);
  changed.device_memory_bytes = {999};
  EXPECT_NE(base, build({test_machine("a", 2), changed}).hash());
  changed = test_machine("b", 1);
  changed.device_overhead_seconds_per_byte = {1e-9};
  EXPECT_NE(base, build({test_machine("a", 2), changed}).hash());
  changed.device_overhead_seconds_per_byte = {0};
  EXPECT_EQ(base, build({test_machine("a", 2), changed}).hash());
  changed = test_machine("b", 1);
  changed.devices[0].name = "other";
  changed.devices[0].efficiency[0] = 0.5;
  EXPECT_NE(base, build({test_machine("a", 2), changed}).hash());
  EXPECT_NE(base, build({test_machine("a", 2), test_machine("b", 1)}, {5e-9, 1}).hash());
}

TEST(Cluster, RefusesWhatMakesNoSense) {
  const MachineSpec a = test_machine("a", 2);
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("test.json"), HasSubstr("at least one machine")));
  EXPECT_THAT(refusal({test_machine("a", 0)}), HasSubstr("'a': devices is empty"));
  EXPECT_THAT(refusal({a, a}), HasSubstr("two machines are named 'a'"));
  EXPECT_THAT(refusal({test_machine("", 1)}), HasSubstr("empty name"));

  MachineSpec spec = a;
  spec.nic.bytes_per_second = 0;
  EXPECT_THAT(refusal({spec, test_machine("b", 1)}),
              AllOf(HasSubstr("'a': it has no nic"), HasSubstr("nic.bandwidth_bytes_per_second")));
  EXPECT_EQ(refusal({spec}), "accepted");  // alone it needs none

  spec = a;
  spec.fabric.port_bytes_per_second = 0;
  EXPECT_THAT(refusal({spec}), HasSubstr("cannot reach each other"));
  spec.devices.resize(1);
  EXPECT_EQ(refusal({spec}), "accepted");

  spec = a;
  spec.fabric.kind = FabricSpec::Kind::kSockets;
  EXPECT_THAT(refusal({spec}), HasSubstr("socket_bandwidth_bytes_per_second"));
  spec = a;
  spec.fabric.latency_seconds = -1;
  EXPECT_THAT(refusal({spec}), HasSubstr("fabric.latency_seconds is -1"));
  spec = a;
  spec.nic.latency_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal({spec}), HasSubstr("nic"));
  spec = a;
  spec.devices[1].memory_bytes = -5;
  EXPECT_THAT(refusal({spec}), HasSubstr("memory_bytes of fast is -5"));
  spec = a;
  spec.device_memory_bytes = {0, 1};
  EXPECT_THAT(refusal({spec}), HasSubstr("memory_bytes is 0"));
  spec = a;
  spec.devices[1].launch_seconds = 1;  // same name, other figures
  EXPECT_THAT(refusal({spec}), HasSubstr("two different device types are named 'fast'"));
  EXPECT_THAT(refusal({a}, {-1, 0}), HasSubstr("network"));
  EXPECT_THAT(refusal({test_machine("a", kMaxDevices + 1)}), HasSubstr("1025 devices"));
  EXPECT_EQ(refusal({test_machine("a", 100)}), "accepted");
}

TEST(Cluster, EveryClassHasItsName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kOpClassCount; ++i) names.insert(op_class_name(static_cast<OpClass>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kOpClassCount));
  EXPECT_EQ(op_class_name(OpClass::kMatMul), "matmul");
  EXPECT_EQ(op_class_name(OpClass::kConvolution3x3), "convolution_3x3");
  EXPECT_EQ(op_class_name(OpClass::kOptimizer), "optimizer");
}

}  // namespace
}  // namespace heterog::cluster

// Cluster files and the device data base: what is shipped, and what is refused with which words.
#include "cluster/cluster_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace heterog::cluster {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const DeviceDatabase& devices() {
  static const DeviceDatabase database = read_devices("configs/devices.json");
  return database;
}

std::vector<std::string> models(const std::string& name) {
  const Cluster c = load_cluster("configs/clusters/" + name + ".json");
  std::vector<std::string> models;
  for (DeviceId device : c.device_ids()) models.push_back(c.type_of(device).name);
  return models;
}

std::string refusal(const std::string& text) {
  try {
    parse_cluster(text, "c.json", devices(), read_links("configs/links.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), HasSubstr("c.json"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "accepted";
}

const std::string kFabric =
    R"("fabric": {"kind": "switch", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6})";
const std::string kNic = R"("nic": {"bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6})";

// A cluster file with these machines and further top-level text.
std::string file(const std::string& machines, const std::string& more = "") {
  return R"({"format": "heterog-cluster", "version": 1, "name": "c", "machines": [)" + machines +
         "]" + more + "}";
}

std::string machine(const std::string& devices, const std::string& more = "") {
  return R"({"name": "m", "devices": [)" + devices + "]" + more + "}";
}

TEST(ClusterFiles, EveryShippedClusterLoadsUnderItsOwnName) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("configs/clusters")) {
    const Cluster c = load_cluster(entry.path().string());
    EXPECT_EQ(c.name(), entry.path().stem().string());
    ++count;
  }
  EXPECT_GE(count, 25u);
}

TEST(ClusterFiles, DevicesStandInThePapersOrder) {
  // HeteroG table 2: G0, G1 V100; G2 to G5 1080 Ti; G6, G7 P100.
  EXPECT_THAT(models("heterog-8gpu"),
              ElementsAre("V100-PCIE-16GB", "V100-PCIE-16GB", "GTX-1080-Ti", "GTX-1080-Ti",
                          "GTX-1080-Ti", "GTX-1080-Ti", "P100-PCIE-12GB", "P100-PCIE-12GB"));
  EXPECT_THAT(models("heterog-4gpu"),
              ElementsAre("V100-PCIE-16GB", "V100-PCIE-16GB", "GTX-1080-Ti", "GTX-1080-Ti"));
  EXPECT_EQ(models("heterog-12gpu").size(), 12u);
  EXPECT_EQ(models("celeritas-4gpu"), std::vector<std::string>(4, "V100-PCIE-32GB"));
  EXPECT_EQ(models("spp-a"), std::vector<std::string>(8, "GTX-1080-Ti"));
  EXPECT_EQ(models("spp-sim").size(), 32u);
  EXPECT_EQ(models("autosync-b8"), std::vector<std::string>(32, "T4"));
}

TEST(ClusterFiles, MachinesOfHeteroG) {
  const Cluster c = load_cluster("configs/clusters/heterog-8gpu.json");
  ASSERT_EQ(c.machine_count(), 4u);
  EXPECT_EQ(c.machine(MachineId(1)).name, "1080ti-0");
  EXPECT_TRUE(c.same_machine(DeviceId(0), DeviceId(1)));
  EXPECT_TRUE(c.same_machine(DeviceId(2), DeviceId(3)));
  EXPECT_FALSE(c.same_machine(DeviceId(3), DeviceId(4)));
  EXPECT_TRUE(c.same_machine(DeviceId(6), DeviceId(7)));
  // From a V100 to a 1080 Ti: out through 100 GbE, in through 50 GbE.
  const Route& route = c.route(DeviceId(0), DeviceId(2));
  EXPECT_EQ(c.link(route.links[0]).bytes_per_second, 12.1e9);
  EXPECT_EQ(c.link(route.links[1]).bytes_per_second, 3.7e9);
  EXPECT_EQ(route.latency, 22600 + 2800 + 3000 + 2800);
  EXPECT_EQ(route.launch, 22600);
}

TEST(ClusterFiles, CloudCapsAFlow) {
  const Cluster c = load_cluster("configs/clusters/autosync-b11.json");
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(4)).cap_bytes_per_second, 1.15e9);
  EXPECT_EQ(c.route(DeviceId(0), DeviceId(1)).cap_bytes_per_second, 0);
  EXPECT_EQ(c.machine(MachineId(0)).host_memory_bytes, Bytes{488} << 30);
  EXPECT_EQ(c.flows(), 1);
}

TEST(ClusterFiles, MachinesTalkOverAsManyFlowsAsTheFileSays) {
  const auto with_flows = [](const std::string& flows) {
    return file(machine(R"({"model": "T4"})", R"(, "count": 2, )" + kFabric + ", " + kNic),
                R"(, "network": {"latency_seconds": 0, "flows": )" + flows + "}");
  };
  const auto read = [&](const std::string& flows) {
    return parse_cluster(with_flows(flows), "c.json", devices(), read_links("configs/links.json"));
  };
  const Cluster four = read("4"), one = read("1");
  EXPECT_EQ(four.flows(), 4);
  EXPECT_EQ(four.route(DeviceId(0), DeviceId(1)).flows, 4);
  EXPECT_NE(four.hash(), one.hash());
  for (const char* flows : {"0", "17", "1.5", "\"4\""}) {
    EXPECT_THAT(refusal(with_flows(flows)), HasSubstr("network.flows")) << flows;
  }
}

TEST(ClusterFiles, HostsOfTensorFlowsBenchmarkServe) {
  const Cluster c = load_cluster("configs/clusters/tensorflow-ec2-64gpu.json");
  EXPECT_EQ(c.device_count(), 64u);
  ASSERT_EQ(c.host_ids().size(), 8u);
  const Device& host = c.device(c.machine(MachineId(3)).host);
  EXPECT_EQ(host.name, "p2-3/host");
  EXPECT_EQ(host.memory_bytes, Bytes{488} << 30);
  EXPECT_EQ(c.type(host.type).memory_bytes_per_second, 76.8e9);
}

// The key that decides: nothing else of the two files differs.
TEST(ClusterFiles, ServesParametersDecidesWhetherAHostIsAPlace) {
  const auto hosts = [](const std::string& serves) {
    const std::string text =
        file(machine(R"({"model": "T4"})", ", " + kFabric + R"(, "host_memory_bytes": 9000000000,
             "host_model": "CPU", "serves_parameters": )" +
                                               serves));
    return parse_cluster(text, "c.json", devices(), read_links("configs/links.json"))
        .host_ids()
        .size();
  };
  EXPECT_EQ(hosts("true"), 1u);
  EXPECT_EQ(hosts("false"), 0u);
}

TEST(ClusterFiles, TheSameCardBehindASlowerHostIsAnotherType) {
  const auto host = [](const std::string& name, const std::string& more) {
    return R"({"name": ")" + name + R"(", "devices": [{"model": "T4"}], )" + kNic + more + "}";
  };
  const Cluster c = parse_cluster(
      file(host("a", "") + "," + host("b", R"(, "host_seconds": 5e-5)") + "," + host("c", "")),
      "c.json", devices(), read_links("configs/links.json"));
  ASSERT_EQ(c.type_count(), 2u);
  EXPECT_EQ(c.type_of(DeviceId(0)).host_seconds, 0);
  EXPECT_EQ(c.type_of(DeviceId(1)).host_seconds, 5e-5);
  EXPECT_EQ(c.type_of(DeviceId(1)).name, "T4");
  EXPECT_EQ(c.device(DeviceId(2)).type, c.device(DeviceId(0)).type);
}

TEST(DeviceFile, HoldsTheCardsOfThePapers) {
  for (const char* name :
       {"V100-PCIE-16GB", "V100-SXM2-32GB", "P100-PCIE-12GB", "GTX-1080-Ti", "RTX-2080-Ti", "T4",
        "M60", "TITAN-X-Maxwell", "TITAN-X-Pascal", "A100-SXM4-80GB", "H100-SXM5-80GB",
        "H200-SXM5-141GB", "L4", "RTX-3090", "RTX-4090", "CPU"}) {
    EXPECT_EQ(devices().count(name), 1u) << name;
  }
  const DeviceType& v100 = devices().at("V100-PCIE-16GB");
  EXPECT_EQ(v100.memory_bytes, Bytes{16} << 30);
  EXPECT_EQ(v100.fp32_flops_per_second, 14e12);
  EXPECT_EQ(v100.memory_bytes_per_second, 900e9);
  EXPECT_GT(v100.efficiency[static_cast<int>(OpClass::kConvolution3x3)], 1);
  // nvidia-smi says 81,559 MiB, of which the driver leaves less.
  for (const char* name : {"H100-SXM5-80GB", "H100-PCIe"}) {
    EXPECT_LT(devices().at(name).memory_bytes, Bytes{81'100} << 20) << name;
    EXPECT_GT(devices().at(name).memory_bytes, Bytes{81'000} << 20) << name;
  }
  // Cards wait for the slowest of them; a processor is costed by a profile of itself.
  EXPECT_EQ(v100.step_deviation, 0.03);
  EXPECT_EQ(devices().at("CPU").step_deviation, 0);
}

TEST(ClusterFiles, CountReplicatesAMachineAndCommentsAreAllowed) {
  const Cluster c = parse_cluster(
      file(R"({"name": "m", "count": 2, "devices": [{"model": "T4"}], )" + kNic + "}") + " // done",
      "c.json", devices());
  ASSERT_EQ(c.machine_count(), 2u);
  EXPECT_EQ(c.machine(MachineId(0)).name, "m-0");
  EXPECT_EQ(c.machine(MachineId(1)).name, "m-1");
}

TEST(LinkFile, HoldsTheLinksOfClusters) {
  const LinkDatabase links = read_links("configs/links.json");
  EXPECT_EQ(links.at("100gbe-rdma").bytes_per_second, 12.1e9);
  for (const auto& [name, kind] : links) {
    EXPECT_GT(kind.bytes_per_second, 0) << name;
    EXPECT_GT(kind.launch_seconds, kind.latency_seconds) << name;
  }
  EXPECT_GT(links.at("pcie3").bytes_per_second, links.at("pcie3-staged").bytes_per_second);
  EXPECT_GT(links.at("10gbe-tcp").latency_seconds, links.at("100gbe-rdma").latency_seconds);
}

// A named kind gives all figures but those that the file gives itself; without one they are all
// given, and there is no launch.
TEST(ClusterFiles, LinksAreNamedOrDescribed) {
  const std::string two = R"({"model": "T4", "count": 2})";
  const LinkDatabase links = parse_links(
      R"({"format": "heterog-links", "version": 1, "links": [
          {"name": "wire", "bandwidth_bytes_per_second": 3e9, "latency_seconds": 2e-6,
           "launch_seconds": 7e-6, "source": "nowhere"}]})",
      "links.json");
  const auto read = [&](const std::string& fabric) {
    return parse_cluster(file(machine(two, R"(, "fabric": )" + fabric)), "c.json", devices(),
                         links);
  };
  const Cluster named = read(R"({"kind": "switch", "link": "wire"})");
  const Route& route = named.route(DeviceId(0), DeviceId(1));
  EXPECT_EQ(named.link(route.links[0]).bytes_per_second, 3e9);
  EXPECT_EQ(route.launch, 7000);
  EXPECT_EQ(route.latency, 9000);
  const Cluster faster = read(
      R"({"kind": "sockets", "link": "wire", "bandwidth_bytes_per_second": 5e9,
          "launch_seconds": 1e-6, "socket_link": "wire"})");
  const Route& crossing = faster.route(DeviceId(0), DeviceId(1));
  EXPECT_EQ(faster.link(crossing.links[0]).bytes_per_second, 5e9);
  EXPECT_EQ(faster.link(crossing.links[1]).bytes_per_second, 3e9);
  EXPECT_EQ(crossing.latency, 3000);
  EXPECT_NE(named.hash(), faster.hash());
  const Cluster described =
      read(R"({"kind": "switch", "bandwidth_bytes_per_second": 4e9, "latency_seconds": 1e-6})");
  EXPECT_EQ(described.route(DeviceId(0), DeviceId(1)).launch, 0);
  EXPECT_EQ(described.route(DeviceId(0), DeviceId(1)).latency, 1000);

  EXPECT_THAT(
      refusal(file(machine(two, R"(, "fabric": {"kind": "switch", "link": "pci3"})"))),
      AllOf(HasSubstr("machines[0].fabric.link"), HasSubstr("'pci3'"), HasSubstr("pcie3-staged")));
  EXPECT_THAT(refusal(file(machine(two, R"(, "fabric": {"kind": "sockets", "link": "pcie3"})"))),
              HasSubstr("socket_bandwidth_bytes_per_second"));
  EXPECT_THAT(refusal(file(machine(two, R"(, "fabric": {"kind": "switch"})"))),
              HasSubstr("bandwidth_bytes_per_second"));
}

TEST(ClusterFiles, SayWhatStandsBesideTheLinks) {
  const LinkDatabase links = parse_links(
      R"({"format": "heterog-links", "version": 1, "links": [
          {"name": "staged", "bandwidth_bytes_per_second": 4e9, "latency_seconds": 0,
           "launch_seconds": 0, "feeds_nic": true},
          {"name": "calls", "bandwidth_bytes_per_second": 5e8, "latency_seconds": 5e-5,
           "launch_seconds": 1e-4}]})",
      "links.json");
  const std::string nic =
      R"("nic": {"bandwidth_bytes_per_second": 6e9, "latency_seconds": 1e-6,
                 "device_bandwidth_bytes_per_second": 1.5e9})";
  const auto read = [&](const std::string& fabric, const std::string& servers) {
    return parse_cluster(
        file(R"({"name": "m", "count": 2, "devices": [{"model": "T4", "count": 2}], "fabric": )" +
                 fabric + ", " + nic + "}",
             R"(, "network": {"latency_seconds": 0)" + servers + "}"),
        "c.json", devices(), links);
  };
  const Cluster c = read(R"({"kind": "switch", "link": "staged"})",
                         R"(, "parameter_servers": {"link": "calls"})");
  const Route& route = c.route(DeviceId(0), DeviceId(2));
  EXPECT_EQ(route.links.size(), 4u);
  EXPECT_EQ(route.device_bytes_per_second, 1.5e9);
  EXPECT_EQ(route.server_bytes_per_second, 5e8);
  EXPECT_EQ(route.server_latency, 200000);
  const Cluster own = read(R"({"kind": "switch", "link": "staged", "feeds_nic": false})", "");
  EXPECT_EQ(own.route(DeviceId(0), DeviceId(2)).links.size(), 2u);
  EXPECT_EQ(own.route(DeviceId(0), DeviceId(2)).server_bytes_per_second, 0);
}

TEST(ClusterFiles, SayWhatTransfersTakeOfGpus) {
  const LinkDatabase links = read_links("configs/links.json");
  const auto taken = [&](const std::string& more) {
    const Cluster c = parse_cluster(
        file(R"({"name": "m", "count": 2, "devices": [{"model": "T4"}], "nic": {)" + more + "}}",
             R"(, "network": {"latency_seconds": 0})"),
        "c.json", devices(), links);
    return std::pair(c.machine(MachineId(1)).transfer_multiprocessors, c.hash());
  };
  const auto kernels = taken(R"("link": "25gbe-tcp")");
  EXPECT_EQ(kernels.first, 2);
  EXPECT_EQ(taken(R"("link": "ps-lite-10gbe")").first, 0);
  const auto none = taken(R"("link": "25gbe-tcp", "transfer_multiprocessors": 0)");
  EXPECT_EQ(none.first, 0);
  EXPECT_NE(none.second, kernels.second);
  EXPECT_EQ(taken(R"("bandwidth_bytes_per_second": 1e9, "latency_seconds": 0)").first, 0);
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4"})",
                                   R"(, "nic": {"link": "25gbe-tcp",
                                               "transfer_multiprocessors": -1})"))),
              HasSubstr("nic.transfer_multiprocessors"));
}

TEST(LinkFile, RefusesSlips) {
  const auto refuses = [](const std::string& entries) -> std::string {
    try {
      parse_links(R"({"format": "heterog-links", "version": 1, "links": [)" + entries + "]}", "l");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  };
  const std::string wire = R"({"name": "w", "bandwidth_bytes_per_second": 1e9,
                               "latency_seconds": 0, "launch_seconds": 0})";
  EXPECT_EQ(refuses(wire), "accepted");
  EXPECT_THAT(refuses(wire + "," + wire), HasSubstr("'w' appears twice"));
  EXPECT_THAT(refuses(R"({"name": "w", "bandwidth_bytes_per_second": 0, "latency_seconds": 0,
                          "launch_seconds": 0})"),
              HasSubstr("links[0].bandwidth_bytes_per_second"));
  EXPECT_THAT(refuses(R"({"name": "w", "bandwidth_bytes_per_second": 1, "latency_seconds": 0})"),
              HasSubstr("launch_seconds"));
}

TEST(ClusterFiles, DeviceMemoryCanBeOverridden) {
  const Cluster c =
      parse_cluster(file(machine(R"({"model": "T4", "memory_bytes": 1000000000}, {"model": "T4"})",
                                 ", " + kFabric)),
                    "c.json", devices());
  EXPECT_EQ(c.device(DeviceId(0)).memory_bytes, 1000000000);
  EXPECT_EQ(c.device(DeviceId(1)).memory_bytes, Bytes{16} << 30);
}

TEST(ClusterFiles, DevicesMayHaveAnOverhead) {
  const Cluster c = parse_cluster(
      file(machine(R"({"model": "CPU", "overhead_seconds_per_byte": 1e-9}, {"model": "T4"})",
                   ", " + kFabric)),
      "c.json", devices());
  EXPECT_EQ(c.device(DeviceId(0)).overhead_seconds_per_byte, 1e-9);
  EXPECT_EQ(c.device(DeviceId(1)).overhead_seconds_per_byte, 0);
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "overhead_seconds_per_byte": -1})"))),
              AllOf(HasSubstr("overhead_seconds_per_byte"), HasSubstr("-1")));
}

TEST(ClusterFiles, ErrorsNameTheFieldAndWhatWouldBeRight) {
  const std::string t4 = R"({"model": "T4"})";
  EXPECT_EQ(refusal(file(machine(t4))), "accepted");
  EXPECT_THAT(refusal(file(machine(R"({"model": "V100-PCI-16GB"})"))),
              AllOf(HasSubstr("machines[0].devices[0].model"), HasSubstr("'V100-PCI-16GB'"),
                    HasSubstr("V100-PCIE-16GB")));
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "cuont": 2})"))),
              AllOf(HasSubstr("machines[0].devices[0]"), HasSubstr("cuont")));
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "count": 0})"))), HasSubstr("count"));
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "count": -3})"))), HasSubstr("count"));
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "memory_bytes": -1})"))),
              AllOf(HasSubstr("memory_bytes"), HasSubstr("-1")));
  EXPECT_THAT(refusal(file(machine(""))), HasSubstr("machines[0].devices is empty"));
  EXPECT_THAT(refusal(file("")), HasSubstr("at least one machine"));
  EXPECT_THAT(refusal(file(machine(t4), R"(, "netwrok": {})")), HasSubstr("netwrok"));
  EXPECT_THAT(refusal(file(machine(R"({"model": "T4", "count": 2})"))),
              AllOf(HasSubstr("machines[0].fabric is missing"), HasSubstr("cannot reach")));
  EXPECT_THAT(
      refusal(file(machine(R"({"model": "T4", "count": 2})",
                           R"(, "fabric": {"kind": "mesh", "bandwidth_bytes_per_second": 1,
                               "latency_seconds": 0})"))),
      AllOf(HasSubstr("machines[0].fabric.kind is 'mesh'"), HasSubstr("switch, bus or sockets")));
  EXPECT_THAT(
      refusal(file(machine(R"({"model": "T4", "count": 2})",
                           R"(, "fabric": {"kind": "switch", "bandwidth_bytes_per_second": -1,
                               "latency_seconds": 0})"))),
      HasSubstr("bandwidth_bytes_per_second"));
  // Two machines, one of them without a way out.
  EXPECT_THAT(
      refusal(file(machine(t4, ", " + kNic) + R"(,{"name": "n", "devices": [)" + t4 + "]}")),
      AllOf(HasSubstr("'n'"), HasSubstr("no nic")));
  EXPECT_THAT(refusal(file(machine(t4, ", " + kNic) + "," + machine(t4, ", " + kNic))),
              HasSubstr("two machines are named 'm'"));
  EXPECT_THAT(refusal(file(machine(t4, R"(, "serves_parameters": true)"))),
              HasSubstr("host_memory_bytes"));
  const std::string memory = R"(, "host_memory_bytes": 9000000000)";
  EXPECT_THAT(
      refusal(file(machine(t4, R"(, "serves_parameters": true)" + memory))),
      AllOf(HasSubstr("machines[0].serves_parameters"), HasSubstr("host_model is missing")));
  EXPECT_THAT(refusal(file(machine(t4, R"(, "host_model": "CPU-E5-2686")" + memory))),
              AllOf(HasSubstr("machines[0].host_model"), HasSubstr("unknown device"),
                    HasSubstr("CPU-E5-2686-v4")));
  EXPECT_THAT(
      refusal(file(machine(t4, R"(, "host_model": "CPU", "serves_parameters": true)" + memory))),
      HasSubstr("fabric is missing, so its devices and its host cannot reach each other"));
  EXPECT_THAT(
      refusal(file(machine(R"({"model": "T4", "count": 1000}, {"model": "T4", "count": 25})",
                           ", " + kFabric))),
      HasSubstr("1024 devices"));
  EXPECT_THAT(refusal(R"({"format": "heterog-graph", "version": 1})"), HasSubstr("format"));
  EXPECT_THAT(refusal(R"({"format": "heterog-cluster", "version": 2})"), HasSubstr("version"));
  EXPECT_THAT(refusal("{"), HasSubstr("c.json"));
  for (const char* name : {"a\\nb", "", ".", "..", ".a", "a/b", "../a", "a\\\\b"}) {
    EXPECT_THAT(refusal(file(fmt::format(R"({{"name": "{}", "devices": []}})", name))),
                AllOf(HasSubstr("machines[0].name"), HasSubstr("printable")))
        << name;
  }
}

TEST(ClusterFiles, MissingFileSaysWhichOne) {
  try {
    load_cluster("configs/clusters/nowhere.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), HasSubstr("configs/clusters/nowhere.json"));
  }
}

TEST(ClusterFiles, TheNearestDataBaseAboveTheFileCounts) {
  const fs::path folder = fs::path(testing::TempDir()) / "heterog_nearest";
  fs::create_directories(folder / "clusters");
  std::ofstream(folder / "devices.json") << R"({"format": "heterog-devices", "version": 1,
    "efficiencies": [{"name": "e", "shares": {"matmul": 0.5, "convolution": 0.5,
      "convolution_3x3": 0.5, "depthwise_convolution": 0.5, "elementwise": 0.5, "reduction": 0.5,
      "normalization": 0.5, "softmax": 0.5, "pooling": 0.5, "embedding": 0.5, "copy": 0.5,
      "optimizer": 0.5}}],
    "devices": [{"name": "mine", "memory_bytes": 100, "reserve_bytes": 10,
      "fp32_flops_per_second": 1e12, "half_flops_per_second": 1e12, "fp64_flops_per_second": 1e12,
      "memory_bytes_per_second": 1e9, "launch_seconds": 0, "half_efficiency_flop": 0,
      "efficiency": "e"}]})";
  std::ofstream(folder / "clusters" / "c.json") << file(machine(R"({"model": "mine"})"));
  const Cluster c = load_cluster((folder / "clusters" / "c.json").string());
  EXPECT_EQ(c.type_of(DeviceId(0)).name, "mine");
  EXPECT_EQ(c.type_of(DeviceId(0)).reserve_bytes, 10);
  fs::remove_all(folder);
}

// A file beside the cluster holds what is new or different alone.
TEST(ClusterFiles, DataBasesBesideThemAddToTheShippedOnes) {
  const fs::path folder = fs::path(testing::TempDir()) / "heterog_beside";
  fs::create_directories(folder);
  const auto device = [](const std::string& name) {
    return R"({"name": ")" + name + R"(", "memory_bytes": 1000, "reserve_bytes": 10,
      "fp32_flops_per_second": 1e12, "half_flops_per_second": 1e12, "fp64_flops_per_second": 1e12,
      "memory_bytes_per_second": 1e9, "launch_seconds": 0, "half_efficiency_flop": 0,
      "efficiency": "turing", "calibration": "t4"})";
  };
  std::ofstream(folder / "devices.json")
      << R"({"format": "heterog-devices", "version": 1, "devices": [)" << device("mine") << ", "
      << device("T4") << "]}";
  std::ofstream(folder / "links.json") << R"({"format": "heterog-links", "version": 1, "links": [
      {"name": "my-wire", "bandwidth_bytes_per_second": 5e9, "latency_seconds": 1e-6,
       "launch_seconds": 0},
      {"name": "10gbe-tcp", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6,
       "launch_seconds": 0}]})";
  const auto alone = [](const std::string& name, const std::string& model,
                        const std::string& link) {
    return R"({"name": ")" + name + R"(", "devices": [{"model": ")" + model +
           R"("}], "nic": {"link": ")" + link + R"("}})";
  };
  const auto load = [&](const std::string& machines) {
    std::ofstream(folder / "c.json") << file(machines);
    return load_cluster((folder / "c.json").string());
  };
  const Cluster c = load(alone("a", "mine", "my-wire") + "," + alone("b", "T4", "10gbe-tcp") + "," +
                         alone("c", "P4", "25gbe-tcp"));
  const auto type = [&](std::size_t i) { return c.type_of(DeviceId(i)); };
  EXPECT_EQ(type(0).memory_bytes, 1000);
  ASSERT_TRUE(type(0).calibration);
  EXPECT_EQ(*type(0).calibration, *devices().at("T4").calibration);
  EXPECT_EQ(type(1).memory_bytes, 1000);  // the near one's, not the shipped one's
  EXPECT_EQ(type(2), devices().at("P4"));
  const auto out = [&](std::size_t from, std::size_t to) {
    return c.link(c.route(DeviceId(from), DeviceId(to)).links[0]).bytes_per_second;
  };
  EXPECT_EQ(out(0, 1), 5e9);
  EXPECT_EQ(out(1, 0), 1e9);
  EXPECT_EQ(out(2, 0), 1.7e9);
  // What is nowhere is refused still.
  std::ofstream(folder / "devices.json", std::ios::app) << " ";
  try {
    load(alone("a", "his", "my-wire"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown device 'his'"));
  }
  fs::remove_all(folder);
}

TEST(DeviceFile, RefusesSlips) {
  const auto refuses = [](const std::string& text) -> std::string {
    try {
      parse_devices(text, "d.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  };
  const std::string head =
      R"({"format": "heterog-devices", "version": 1, "efficiencies": [], "devices": [)";
  EXPECT_THAT(refuses(head + "]}"), HasSubstr("d.json: devices is empty"));
  for (const char* name : {"../x", "/x", "x/y", ".x", ".."}) {  // of files of --profile-out
    EXPECT_THAT(refuses(head + fmt::format(R"({{"name": "{}"}}]}})", name)),
                AllOf(HasSubstr("devices[0].name"), HasSubstr("slashes")));
  }
  EXPECT_THAT(refuses(head + R"({"name": "x", "memory_bytes": 1, "reserve_bytes": 1}]})"),
              HasSubstr("devices[0].reserve_bytes"));
  EXPECT_THAT(refuses(head + R"({"name": "x", "memory_bytes": 9, "reserve_bytes": 1,
      "fp32_flops_per_second": 1, "half_flops_per_second": 1, "fp64_flops_per_second": 1,
      "memory_bytes_per_second": 1, "launch_seconds": 0, "half_efficiency_flop": 0,
      "efficiency": "nothing"}]})"),
              AllOf(HasSubstr("devices[0].efficiency"), HasSubstr("'nothing'")));
  EXPECT_THAT(refuses(R"({"format": "heterog-devices", "version": 1, "efficiencies": [
      {"name": "all", "shares": {"matmul": 1, "convolution": 1, "convolution_3x3": 1,
       "depthwise_convolution": 1, "elementwise": 1, "reduction": 1, "normalization": 1,
       "softmax": 1, "pooling": 1, "embedding": 1, "copy": 1, "optimizer": 1}}], "devices": [
      {"name": "x", "memory_bytes": 9, "reserve_bytes": 1, "fp32_flops_per_second": 1,
       "half_flops_per_second": 1, "fp64_flops_per_second": 1, "memory_bytes_per_second": 1,
       "launch_seconds": 0, "half_efficiency_flop": 0, "efficiency": "all",
       "step_deviation": 1.5}]})"),
              AllOf(HasSubstr("devices[0].step_deviation"), HasSubstr("1.5")));
}

}  // namespace
}  // namespace heterog::cluster

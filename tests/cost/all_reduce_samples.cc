// Reads the rows, and builds the machines that they were measured on.
#include "cost/all_reduce_samples.h"

#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "cost/collective.h"

namespace heterog::cost {

std::vector<AllReduceSample> read_all_reduce_samples(const std::string& path) {
  std::vector<AllReduceSample> samples;
  std::istringstream text(read_file(path));
  std::string line;
  std::getline(text, line);
  VALIDATE(line == "source,device,devices,machines,bytes,algorithm,seconds",
           "{}: the first line is '{}'", path, line);
  while (std::getline(text, line)) {
    std::istringstream fields(line);
    std::vector<std::string> parts;
    for (std::string part; std::getline(fields, part, ',');) parts.push_back(part);
    VALIDATE(parts.size() == 7, "{}: {} fields in '{}'; there should be 7", path, parts.size(),
             line);
    samples.push_back({parts[1], std::stoi(parts[2]), std::stoi(parts[3]), std::stoll(parts[4]),
                       parts[5], std::stod(parts[6]), samples.size() % 5 == 4});
  }
  return samples;
}

double predicted_seconds(const AllReduceSample& sample, const cluster::LinkDatabase& links) {
  // The Pascal cards for games stand in boxes where all of them reach each other's memory.
  const bool peers = sample.device == "GTX-1080-Ti" || sample.device == "TITAN-X-Pascal";
  const cluster::LinkKind port = links.at(peers ? "pcie3" : "pcie3-sockets");
  const cluster::LinkKind card = links.at(peers ? "infiniband-fdr" : "infiniband-fdr-staged");
  cluster::DeviceType type;
  type.name = sample.device;
  type.memory_bytes = 1;
  type.fp32_flops_per_second = type.memory_bytes_per_second = 1;
  cluster::ClusterBuilder builder(sample.device);
  for (int m = 0; m < sample.machines; ++m) {
    cluster::MachineSpec machine;
    machine.name = std::to_string(m);
    machine.devices.assign(8, type);
    machine.fabric.kind =
        peers ? cluster::FabricSpec::Kind::kSockets : cluster::FabricSpec::Kind::kSwitch;
    machine.fabric.port_bytes_per_second = port.bytes_per_second;
    machine.fabric.socket_bytes_per_second = links.at("pcie3-across-switches").bytes_per_second;
    machine.fabric.latency_seconds = port.latency_seconds;
    machine.fabric.launch_seconds = port.launch_seconds;
    machine.nic = {card.bytes_per_second, card.latency_seconds, card.launch_seconds};
    builder.add_machine(std::move(machine));
  }
  builder.set_network({3e-6, 0});
  const cluster::Cluster cluster = std::move(builder).build("samples");
  std::vector<DeviceId> devices;
  for (int d = 0; d < sample.devices; ++d) devices.emplace_back(static_cast<std::size_t>(d));
  return to_seconds(
      all_reduce_cost(cluster, devices, sample.bytes, AllReduceAlgorithm::kRing).duration);
}

}  // namespace heterog::cost

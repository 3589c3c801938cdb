// Small device types and machines for tests of clusters.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::cluster {

// Round figures: 10 TFLOP/s, 1 TB/s, everything at full share, no launch time.
inline DeviceType test_type(std::string name = "fast") {
  DeviceType type;
  type.name = std::move(name);
  type.memory_bytes = 1000;
  type.fp32_flops_per_second = 10e12;
  type.half_flops_per_second = 20e12;
  type.fp64_flops_per_second = 5e12;
  type.memory_bytes_per_second = 1e12;
  for (double& share : type.efficiency) share = 1;
  return type;
}

// `devices` of one type behind a switch of 10 B/s a port and 1 ns, a NIC of 2 B/s and 3 ns.
inline MachineSpec test_machine(std::string name, std::size_t devices,
                                DeviceType type = test_type()) {
  MachineSpec spec;
  spec.name = std::move(name);
  spec.devices.assign(devices, std::move(type));
  spec.fabric = {FabricSpec::Kind::kSwitch, 10, 0, 1e-9};
  spec.nic = {2, 3e-9};
  return spec;
}

// Its host serves parameters: 500 bytes, half as fast as a device.
inline MachineSpec with_server(MachineSpec spec, std::string name = "processor") {
  spec.server = test_type(std::move(name));
  spec.server->memory_bytes_per_second = 5e11;
  spec.host_memory_bytes = 500;
  return spec;
}

}  // namespace heterog::cluster

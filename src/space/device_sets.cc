// Devices by machine and by type.
#include "space/device_sets.h"

#include <algorithm>

#include "space/balance.h"

namespace heterog::space {

DeviceSets device_sets(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  DeviceSets sets;
  for (MachineId machine : id_range<MachineId>(cluster.machine_count())) {
    sets.machines.push_back(cluster.machine(machine).devices);
  }
  std::vector<DeviceTypeId> types;
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) types.push_back(type);
  std::stable_sort(types.begin(), types.end(), [&](DeviceTypeId a, DeviceTypeId b) {
    return problem.costs.model_speed(a) > problem.costs.model_speed(b);
  });
  std::vector<DeviceId> fastest;
  for (DeviceTypeId type : types) {
    std::vector<DeviceId> of_type;
    for (DeviceId device : cluster.device_ids()) {
      if (cluster.device(device).type == type) of_type.push_back(device);
    }
    fastest.insert(fastest.end(), of_type.begin(), of_type.end());
    std::sort(fastest.begin(), fastest.end());
    sets.types.push_back(std::move(of_type));
    sets.fastest.push_back(fastest);
  }
  return sets;
}

std::vector<decide::Replica> balanced_replicas(const cost::Problem& problem,
                                               const ModelSeconds& seconds,
                                               const std::vector<DeviceId>& devices) {
  Samples most(problem.cluster->device_count(), 0);
  for (DeviceId device : devices) most[device] = problem.batch;
  const Samples samples = *balance(seconds, problem.batch, most);
  std::vector<decide::Replica> replicas;
  for (DeviceId device : devices) {
    if (samples[device] > 0) replicas.push_back({device, static_cast<double>(samples[device])});
  }
  return replicas;
}

}  // namespace heterog::space

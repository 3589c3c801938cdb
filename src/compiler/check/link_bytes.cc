// Adds up what travels over each link.
#include "compiler/check/link_bytes.h"

#include <algorithm>
#include <map>
#include <set>

#include "cost/all_reduce_algorithm.h"

namespace heterog::compiler {

LinkBytes::LinkBytes(const cluster::Cluster& cluster)
    : cluster_(cluster), bytes_(cluster.link_count(), 0.0), rounding_(cluster.link_count(), 0.0) {}

void LinkBytes::send(DeviceId from, DeviceId to, Bytes bytes) {
  if (from == to) return;
  for (LinkId link : cluster_.route(from, to).links) bytes_[link] += static_cast<double>(bytes);
}

void LinkBytes::cross(DeviceId from, DeviceId to, double bytes) {
  for (LinkId link : cluster_.route(from, to).links) {
    bytes_[link] += bytes;
    rounding_[link] += 1 + cluster_.link(link).bytes_per_second * 1e-9;
  }
}

void LinkBytes::ring(const std::vector<DeviceId>& devices, double share, Bytes bytes) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    cross(devices[i], devices[(i + 1) % devices.size()], share * static_cast<double>(bytes));
  }
}

void LinkBytes::all_reduce(std::vector<DeviceId> devices, Bytes bytes) {
  std::sort(devices.begin(), devices.end());
  const auto n = static_cast<double>(devices.size());
  const auto all = static_cast<double>(bytes);
  switch (cost::all_reduce_algorithm(devices.size(), bytes)) {
    case cost::AllReduceAlgorithm::kRing:
      return ring(devices, 2 * (n - 1) / n, bytes);
    case cost::AllReduceAlgorithm::kExchange:
      for (std::size_t i = 0; i < devices.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          cross(devices[i], devices[j], all);
          cross(devices[j], devices[i], all);
        }
      }
      return;
    case cost::AllReduceAlgorithm::kTree:
      // The parent's number is the child's without its lowest bit.
      for (std::size_t i = 1; i < devices.size(); ++i) {
        cross(devices[i], devices[i & (i - 1)], all);
        cross(devices[i & (i - 1)], devices[i], all);
      }
      return;
  }
}

void LinkBytes::to_server(const std::vector<DeviceId>& devices, DeviceId server, Bytes bytes,
                          bool back) {
  const auto move = [&](DeviceId from, DeviceId to) {
    send(back ? to : from, back ? from : to, bytes);
  };
  std::map<MachineId, std::set<DeviceId>> machines;
  for (DeviceId device : devices) machines[cluster_.device(device).machine].insert(device);
  for (const auto& [machine, members] : machines) {
    const bool own = machine == cluster_.device(server).machine;
    const DeviceId speaker =
        own ? server
            : *std::next(members.begin(),
                         static_cast<std::ptrdiff_t>(server.value() % members.size()));
    move(speaker, server);
    for (DeviceId member : members) move(member, speaker);
  }
}

}  // namespace heterog::compiler

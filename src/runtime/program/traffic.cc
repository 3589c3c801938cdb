// Walks through the instructions that send.
#include "runtime/program/traffic.h"

#include <set>
#include <utility>

namespace heterog::runtime {

comm::Traffic traffic_of(const Job& job) {
  std::set<std::pair<DeviceId, DeviceId>> pairs;
  for (const Program& program : job.programs) {
    for (const Instruction& instruction : program.instructions) {
      const bool sends =
          instruction.action == Action::kSend || instruction.action == Action::kSendRows;
      if (sends) pairs.emplace(program.device, instruction.peer);
    }
  }
  const cluster::Cluster& cluster = *job.problem->cluster;
  comm::Traffic traffic{
      .sets = job.sets, .pairs = {pairs.begin(), pairs.end()}, .flows = cluster.flows()};
  for (DeviceId rank : cluster.place_ids()) {
    traffic.machine_of.push_back(cluster.device(rank).machine);
  }
  return traffic;
}

}  // namespace heterog::runtime

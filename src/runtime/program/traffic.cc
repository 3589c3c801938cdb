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
  return {.sets = job.sets, .pairs = {pairs.begin(), pairs.end()}};
}

}  // namespace heterog::runtime

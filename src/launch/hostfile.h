// Hostfile: the number of ranks on each machine, in lines "HOST slots=N", as mpirun reads it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heterog::launch {

struct HostSlots {
  std::string host;
  int slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// In the order of the file; a host that is named twice has the slots of both lines, in the place of
// the first. A line without slots= is one slot; "#" begins a comment; hosts have names of
// base/names.h. Anything else is an input error that names `source` and the line.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source);

// Ranks are numbered host by host. Throws an input error that names `source` if it lacks the host.
struct HostRanks {
  int first = 0;
  int count = 0;
  int world_size = 0;
};
HostRanks ranks_of_host(const std::vector<HostSlots>& hosts, const std::string& host,
                        const std::string& source);

}  // namespace heterog::launch

// Reads and checks the variables of each starter.
#include "launch/rank_place.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "cluster/cluster.h"

namespace heterog::launch {

namespace {

// The variables of one starter.
struct Starter {
  const char* name;
  const char* mark;  // set where this starter started the process
  const char* rank;
  const char* local_rank;
  const char* world_size;
  bool local_rank_needed;
};

constexpr Starter kStarters[] = {
    {"torchrun", "RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", true},
    // Inside a batch script, outside srun, there is a SLURM_PROCID too, but no step.
    {"Slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", true},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_SIZE", true},
    {"MPI", "PMI_RANK", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", false},
};

constexpr int kMaxRanks = static_cast<int>(cluster::kMaxDevices);

struct Variable {
  const char* name;
  const char* value;  // null: not set
};

int parse_number(const Variable& variable, const Starter& starter, int least, int most) {
  VALIDATE(variable.value != nullptr, "{}: not set, but {} is: {} sets both", variable.name,
           starter.mark, starter.name);
  const std::string_view text = variable.value;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  VALIDATE(
      error == std::errc() && end == text.data() + text.size() && number >= least && number <= most,
      "{}: \"{}\"; it is a number from {} to {}", variable.name, printable(text), least, most);
  return number;
}

RankPlace place_of(const Starter& starter, const Environment& environment) {
  const auto variable = [&](const char* name) { return Variable{name, environment(name)}; };
  RankPlace place{.starter = starter.name,
                  .nccl_on_one_gpu = environment(kNcclOnOneGpu) != nullptr};
  place.world_size = parse_number(variable(starter.world_size), starter, 1, kMaxRanks);
  place.rank = parse_number(variable(starter.rank), starter, 0, place.world_size - 1);
  const Variable local = variable(starter.local_rank);
  if (local.value != nullptr || starter.local_rank_needed) {
    place.local_rank = parse_number(local, starter, 0, place.world_size - 1);
  }
  return place;
}

void read_meeting_point(const Environment& environment, RankPlace& place) {
  const char* address = environment("MASTER_ADDR");
  const char* port = environment("MASTER_PORT");
  if (place.world_size == 1 && address == nullptr && port == nullptr) return;

  VALIDATE(address != nullptr && *address != 0,
           "MASTER_ADDR: not set; the ranks meet there: set it, on every host, to an address of "
           "rank 0's host");
  VALIDATE(port != nullptr,
           "MASTER_PORT: not set; the ranks meet there: set it, on every host, to a free port of "
           "rank 0's host");
  place.master_address = address;
  VALIDATE(printable(place.master_address, 255) == place.master_address &&
               place.master_address.find_first_of(" /") == std::string::npos,
           "MASTER_ADDR: \"{}\"; it is a host name or an address", printable(address));
  place.master_port = parse_port(port, "MASTER_PORT");
}

}  // namespace

std::uint16_t parse_port(const std::string& text, const std::string& name) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  VALIDATE(error == std::errc() && end == text.data() + text.size() && port != 0,
           "{}: \"{}\"; it is a number from 1 to 65535", name, printable(text));
  return port;
}

std::vector<DeviceId> started_in_order(const cluster::Cluster& cluster) {
  std::vector<DeviceId> ranks;
  for (const MachineId id : id_range<MachineId>(cluster.machine_count())) {
    const cluster::Machine& machine = cluster.machine(id);
    ranks.insert(ranks.end(), machine.devices.begin(), machine.devices.end());
    if (machine.host.valid()) ranks.push_back(machine.host);
  }
  return ranks;
}

RankPlace in_job(const cluster::Cluster& cluster, RankPlace place) {
  const std::vector<DeviceId> ranks = started_in_order(cluster);
  const auto number = static_cast<std::size_t>(place.rank);
  if (number < ranks.size()) place.rank = static_cast<int>(ranks[number].value());
  return place;  // else refused where the ranks meet
}

Environment process_environment() {
  return [](const char* name) { return std::getenv(name); };
}

std::optional<RankPlace> read_rank_place(const Environment& environment) {
  for (const Starter& starter : kStarters) {
    if (environment(starter.mark) == nullptr) continue;
    RankPlace place = place_of(starter, environment);
    read_meeting_point(environment, place);
    if (const char* serves = environment("TORCHELASTIC_USE_AGENT_STORE")) {
      place.starter_serves = std::string_view(serves) == "True";
    }
    if (const char* attempt = environment("TORCHELASTIC_RESTART_COUNT")) place.attempt = attempt;
    const char* socket = environment(kListenSocketVariable);
    if (socket != nullptr && place.rank == 0) {
      place.listen_socket = parse_number({kListenSocketVariable, socket}, starter, 3, 1 << 20);
    }
    return place;
  }
  return std::nullopt;
}

}  // namespace heterog::launch

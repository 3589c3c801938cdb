// The command line of ranks, and what a hostfile says of them.
#include "cli/torch/processes.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/options.h"
#include "launch/hostfile.h"
#include "launch/launcher.h"
#include "runtime/program/traffic.h"

namespace heterog::cli {

namespace {

using launch::LaunchOptions;

constexpr std::uint16_t kDefaultPort = 29500;  // torchrun's too
const std::string kProcessesFlag = "--processes";

// Whether --processes stands alone, or has a number.
enum class Flag : std::uint8_t { kAlone, kWithValue };

// As this process was given, for the ranks; they are told by their variables that they are ranks.
std::vector<std::string> own_arguments(Flag flag) {
  std::vector<std::string> arguments;
  std::string all = read_file("/proc/self/cmdline");
  for (std::size_t begin = 0, end; (end = all.find('\0', begin)) != all.npos; begin = end + 1) {
    arguments.push_back(all.substr(begin, end - begin));
  }
  arguments.erase(arguments.begin());
  if (flag == Flag::kWithValue) {
    const auto at = std::ranges::find(arguments, kProcessesFlag);
    if (at != arguments.end()) arguments.erase(at + 1);
    std::erase_if(arguments, [](const std::string& argument) {
      return argument.starts_with(kProcessesFlag + "=");
    });
  }
  std::erase(arguments, kProcessesFlag);
  return arguments;
}

void add_timeout(CLI::App& verb, ProcessOptions& options) {
  add_number(verb, "--timeout", options.timeout_seconds, {1e-3, 1e6},
             "Seconds after which a rank that others wait for counts as lost");
}

CLI::Option* add_transport(CLI::App& verb, ProcessOptions& options) {
  return verb
      .add_option("--transport", options.transport,
                  fmt::format("By what tensors travel between processes: {}",
                              fmt::join(comm::transport_names(), ", ")))
      ->capture_default_str();
}

// LibTorch writes to the connections of ranks that may be gone: that is an error, not the end.
void survive_lost_connections() { std::signal(SIGPIPE, SIG_IGN); }

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// Behind a number of devices: " and 2 hosts that serve parameters".
std::string hosts_text(const cluster::Cluster& cluster) {
  const std::size_t hosts = cluster.host_ids().size();
  return hosts == 0 ? "" : fmt::format(" and {} hosts that serve parameters", hosts);
}

std::size_t ranks_of(const cluster::Cluster& cluster, MachineId id) {
  const cluster::Machine& machine = cluster.machine(id);
  return machine.devices.size() + (machine.host.valid() ? 1 : 0);
}

// The ranks of this host, as the hostfile says.
void place_by_hostfile(const ProcessOptions& options, const cluster::Cluster& cluster,
                       LaunchOptions& launch) {
  const auto hosts = launch::parse_hostfile(read_file(options.hostfile), options.hostfile);
  const std::string host = options.host.empty() ? host_name() : options.host;
  const launch::HostRanks ranks = launch::ranks_of_host(hosts, host, options.hostfile);
  VALIDATE(static_cast<std::size_t>(ranks.world_size) == cluster.place_count(),
           "{}: has {} slots in all, cluster {} has {} devices{}; each {}is a slot",
           options.hostfile, ranks.world_size, cluster.name(), cluster.device_count(),
           hosts_text(cluster), cluster.host_ids().empty() ? "device " : "of these ");
  for (std::size_t i = 0; i < std::max(hosts.size(), cluster.machine_count()); ++i) {
    const std::size_t slots = i < hosts.size() ? static_cast<std::size_t>(hosts[i].slots) : 0;
    const std::size_t devices = i < cluster.machine_count() ? ranks_of(cluster, MachineId(i)) : 0;
    if (slots == devices) continue;
    logger().warn(
        "{}: host {} of it has {} slots, machine {} of cluster {} has {} devices: the "
        "plan counts on other links than there are",
        options.hostfile, i + 1, slots, i + 1, cluster.name(), devices);
    break;
  }
  launch.first = ranks.first;
  launch.count = ranks.count;
  launch.master_address = options.master_address.empty() ? hosts[0].host : options.master_address;
  launch.master_port = kDefaultPort;
}

}  // namespace

std::chrono::milliseconds ProcessOptions::timeout() const {
  return std::chrono::milliseconds(std::llround(timeout_seconds * 1e3));
}

void add_processes(CLI::App& verb, ProcessOptions& options) {
  auto* in_threads =
      verb.add_flag("--in-threads", options.in_threads, "Ranks are threads of this process");
  verb.add_flag(kProcessesFlag, options.processes,
                "Start ranks on this host, even where torchrun, Slurm or mpirun started this "
                "process")
      ->excludes(in_threads);
  add_timeout(verb, options);
  add_transport(verb, options)->excludes(in_threads);
  verb.add_option("--hostfile", options.hostfile,
                  "Lines HOST slots=N: start the ranks of this host among those of all");
  verb.add_option("--host", options.host,
                  "Which host of the file this is; its own name if not given");
  verb.add_option("--master-addr", options.master_address,
                  "Address of rank 0's host, where the ranks meet; the first host of the file, or "
                  "127.0.0.1");
  add_integer(verb, "--master-port", options.master_port, {1, 65535},
              "Port there; 29500 with a hostfile, else any free one");
}

void add_process_count(CLI::App& verb, ProcessOptions& options, int& count) {
  add_integer(
      verb, kProcessesFlag, count, {1, static_cast<std::int64_t>(cluster::kMaxDevices)},
      "Share the work among so many processes, started on this host; 1: this one alone, even "
      "where torchrun, Slurm or mpirun started it");
  add_timeout(verb, options);
  add_transport(verb, options);
}

void add_local_ranks(CLI::App& verb, ProcessOptions& options) {
  auto* in_threads =
      verb.add_flag("--in-threads", options.in_threads, "Ranks are threads of one process");
  add_timeout(verb, options);
  add_transport(verb, options)->excludes(in_threads);
}

void check_processes(const ProcessOptions& options, const Caller& caller) {
  VALIDATE(caller.is_program || (!options.processes && options.hostfile.empty()),
           "{}: starts the program heterog again, and this is another one; leave it out, or run "
           "heterog itself",
           options.processes ? kProcessesFlag : "--hostfile");
  VALIDATE(options.hostfile.empty() || !options.in_threads,
           "--hostfile: starts processes; --in-threads starts none");
  comm::check_transport(options.transport, "--transport");
}

std::optional<launch::RankPlace> own_place(const ProcessOptions& options, const Caller& caller) {
  if (!caller.is_program || options.in_threads || options.processes) return std::nullopt;
  return launch::read_rank_place(launch::process_environment());
}

launch::Joined join_ranks(const runtime::Job& job, const launch::JobTerms& terms,
                          const launch::RankPlace& place, const ProcessOptions& options) {
  survive_lost_connections();
  return launch::join(terms, runtime::traffic_of(job), launch::in_job(*job.problem->cluster, place),
                      {.timeout = options.timeout(), .transport = options.transport});
}

launch::Joined join_equal_ranks(const std::string& verb, const launch::RankPlace& place,
                                const ProcessOptions& options) {
  constexpr std::chrono::milliseconds kToMeet{300'000};
  survive_lost_connections();
  Hasher hasher;
  hasher.add(verb);
  hasher.add(options.transport);
  launch::JobTerms terms{.hash = hasher.value(), .given = "command"};
  for (int rank = 0; rank < place.world_size; ++rank) terms.ranks.push_back({.type = "CPU"});
  return launch::join(terms, {}, place,
                      {.timeout = std::min(options.timeout(), kToMeet),
                       .silence = options.timeout(),
                       .transport = options.transport});
}

void start_ranks(const ProcessOptions& options, const cluster::Cluster& cluster,
                 const std::string& if_lost) {
  LaunchOptions launch{.arguments = own_arguments(Flag::kAlone),
                       .device_names = {},
                       .timeout = options.timeout(),
                       .if_lost = if_lost};
  for (const DeviceId rank : launch::started_in_order(cluster)) {
    launch.device_names.push_back(cluster.device(rank).name);
  }
  launch.count = static_cast<int>(cluster.place_count());
  if (!options.hostfile.empty()) {
    place_by_hostfile(options, cluster, launch);
  } else {
    VALIDATE(options.host.empty(), "--host: says which host of a --hostfile this is; none given");
    if (!options.master_address.empty()) launch.master_address = options.master_address;
  }
  if (options.master_port) launch.master_port = *options.master_port;
  launch::launch_ranks(launch);
}

void start_equal_ranks(const ProcessOptions& options, int count, std::chrono::milliseconds obey) {
  launch::launch_ranks({.arguments = own_arguments(Flag::kWithValue),
                        .device_names = std::vector<std::string>(static_cast<std::size_t>(count)),
                        .count = count,
                        .obey = obey,
                        .timeout = options.timeout()});
}

void run_ranks(const std::vector<std::string>& arguments, const cluster::Cluster& cluster,
               std::chrono::milliseconds timeout) {
  LaunchOptions launch{.arguments = arguments,
                       .device_names = {},
                       .quiet = true,
                       .count = static_cast<int>(cluster.place_count()),
                       .timeout = timeout};
  for (const DeviceId rank : launch::started_in_order(cluster)) {
    launch.device_names.push_back(cluster.device(rank).name);
  }
  launch::launch_ranks(launch);
}

std::vector<std::string> device_names(const cluster::Cluster& cluster) {
  std::vector<std::string> names;
  for (const DeviceId rank : cluster.place_ids()) names.push_back(cluster.device(rank).name);
  return names;
}

}  // namespace heterog::cli

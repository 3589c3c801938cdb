// Number of a process among the ranks of its job, as its starter says it: torchrun, Slurm, mpirun,
// or heterog itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace heterog::launch {

struct RankPlace {
  int rank = 0;
  int local_rank = 0;  // among the ranks of this host
  int world_size = 1;
  std::string master_address = "127.0.0.1";  // where the ranks meet
  std::uint16_t master_port = 0;
  std::string starter;               // "torchrun", for messages
  std::string attempt;               // told apart from an earlier start of the same job
  bool starter_serves = false;       // torchrun's agent serves the store, not rank 0
  bool nccl_on_one_gpu = false;      // ranks that share a GPU talk by NCCL (kNcclOnOneGpu)
  std::optional<int> listen_socket;  // of rank 0, inherited; else it opens its own
};

// Null if a variable is not set.
using Environment = std::function<const char*(const char* name)>;
Environment process_environment();

// Nothing if no starter has set its variables; an input error that names the variable if one is
// missing or makes no sense. In this order: RANK, LOCAL_RANK, WORLD_SIZE (torchrun); SLURM_PROCID,
// SLURM_LOCALID, SLURM_NTASKS in a step of srun; OMPI_COMM_WORLD_RANK, …; PMI_RANK, PMI_SIZE.
// Where the ranks meet is MASTER_ADDR and MASTER_PORT for all of them.
std::optional<RankPlace> read_rank_place(const Environment& environment);

// Starters number ranks host by host: the devices of each machine, then its host, where that serves
// parameters. In a job all hosts come last, as in the cluster. By a starter's number, the job's.
std::vector<DeviceId> started_in_order(const cluster::Cluster& cluster);
// The same rank by its number in the job.
RankPlace in_job(const cluster::Cluster& cluster, RankPlace place);

// "1 to 65535", named as in the message.
std::uint16_t parse_port(const std::string& text, const std::string& name);

// To try NCCL where there is one GPU, under any starter but `heterog run` itself: ranks that share
// it count as ranks with GPUs of their own. NCCL refuses two ranks on one GPU of one host, so each
// also needs another NCCL_HOSTID, and sockets between them (docs/gpu.md).
inline constexpr const char* kNcclOnOneGpu = "HETEROG_NCCL_ON_ONE_GPU";

// Set by `heterog run` for the rank 0 that it starts: the number of the inherited socket.
inline constexpr const char* kListenSocketVariable = "HETEROG_LISTEN_SOCKET";

}  // namespace heterog::launch

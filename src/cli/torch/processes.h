// Ranks as processes: how a verb starts them, and how this process is one of them.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/caller.h"
#include "cluster/cluster.h"
#include "launch/join.h"
#include "launch/rank_place.h"
#include "launch/terms.h"
#include "runtime/program/program.h"

namespace heterog::cli {

struct ProcessOptions {
  bool processes = false;  // ranks are started by this process
  bool in_threads = false;
  double timeout_seconds = 300;
  std::string transport = comm::transport_names().front();
  std::string hostfile;
  std::string host;
  std::string master_address;
  std::optional<std::uint16_t> master_port;

  std::chrono::milliseconds timeout() const;
};
// All of them, as verbs take them whose ranks are the devices of a cluster.
void add_processes(CLI::App& verb, ProcessOptions& options);
// --in-threads, --timeout and --transport: of a verb that starts all ranks on this host.
void add_local_ranks(CLI::App& verb, ProcessOptions& options);
// --processes COUNT, --timeout and --transport: of a verb that any number of processes may share.
// 0: as many as a starter has started.
void add_process_count(CLI::App& verb, ProcessOptions& options, int& count);
void check_processes(const ProcessOptions& options, const Caller& caller);

// Which rank this process is, if it is the program, a starter's variables say so, and it is not
// told to start ranks or to hold them as threads.
std::optional<launch::RankPlace> own_place(const ProcessOptions& options, const Caller& caller);

// Meets the other ranks and connects to them.
launch::Joined join_ranks(const runtime::Job& job, const launch::JobTerms& terms,
                          const launch::RankPlace& place, const ProcessOptions& options);

// Meets the other ranks of a job that is about no cluster: what `verb` does is theirs to agree on.
// A rank may be waited for as long as `options` say, but to meet for five minutes at most.
launch::Joined join_equal_ranks(const std::string& verb, const launch::RankPlace& place,
                                const ProcessOptions& options);

// Runs this command again, a process for each rank of this host, and returns once all have ended
// well. Throws what the first of them failed with.
//
// `if_lost` stands behind the message if a rank was lost: what to do then.
void start_ranks(const ProcessOptions& options, const cluster::Cluster& cluster,
                 const std::string& if_lost = "");
// The same with so many ranks, all on this host. Once told to end, they may take so long for it.
void start_equal_ranks(const ProcessOptions& options, int count, std::chrono::milliseconds obey);

// Runs heterog with these arguments, a process for each rank, all on this host, and nothing of what
// they print; as start_ranks().
void run_ranks(const std::vector<std::string>& arguments, const cluster::Cluster& cluster,
               std::chrono::milliseconds timeout);

std::vector<std::string> device_names(const cluster::Cluster& cluster);

}  // namespace heterog::cli

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
  bool processes = false;
  bool in_threads = false;
  double timeout_seconds = 300;
  std::string transport = comm::transport_names().front();
  std::string hostfile;
  std::string host;
  std::string master_address;
  std::optional<std::uint16_t> master_port;

  std::chrono::milliseconds timeout() const;
};
void add_processes(CLI::App& verb, ProcessOptions& options);
void check_processes(const ProcessOptions& options, const Caller& caller);

// Which rank this process is, if it is the program, a starter's variables say so, and it is not
// told to start ranks or to hold them as threads.
std::optional<launch::RankPlace> own_place(const ProcessOptions& options, const Caller& caller);

// Meets the other ranks and connects to them.
launch::Joined join_ranks(const runtime::Job& job, const launch::JobTerms& terms,
                          const launch::RankPlace& place, const ProcessOptions& options);

// Runs this command again, a process for each rank of this host, and returns once all have ended
// well. Throws what the first of them failed with.
void start_ranks(const ProcessOptions& options, const cluster::Cluster& cluster);

std::vector<std::string> device_names(const cluster::Cluster& cluster);

}  // namespace heterog::cli

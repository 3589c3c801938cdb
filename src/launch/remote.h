// Ranks on the hosts of a hostfile, each started over ssh or another remote shell.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/hostfile.h"

namespace heterog::launch {

struct RemoteOptions {
  std::vector<HostSlots> hosts;
  // Called with two more words: the host, and one line for a POSIX shell there. To ssh "--" is said
  // before them: what comes behind it is no option.
  std::vector<std::string> rsh;
  std::vector<std::string> command;      // the same for every rank
  std::string folder;                    // in which it runs there
  std::vector<std::string> environment;  // "NAME=value", set there
  std::string master_address;
  std::uint16_t master_port = 0;
  std::chrono::milliseconds grace{1'500};  // as of LaunchOptions
};

// The line for the shell of a host that starts a rank: it sets RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the environment, and runs the command in a session
// of its own, with nothing on its stdin. Lines on the shell's stdin name signals for all of that
// session; when stdin ends, as when the connection breaks, the session gets SIGTERM and, two
// seconds later, SIGKILL. What the command leaves behind in its session is ended 1.5 s after it.
std::string remote_line(const RemoteOptions& options, int rank);

// The words by which it is told so: rsh, "--" where that is ssh, the host, and the line.
std::vector<std::string> remote_command(const RemoteOptions& options, int rank);

// Starts all ranks and returns when all have ended: 0 if well, else the exit code of the first that
// failed (128 and the signal's number if one ended it), after a line that says which. Output is
// passed on by line after "[rank 1 HOST] ". When one fails, the others are ended, as in
// launch_ranks(); so they are by SIGINT, SIGTERM and SIGHUP, which make the code 128 and their
// number.
int launch_remotely(const RemoteOptions& options);

// Variables of this process that ranks elsewhere need as well: PATH, LD_LIBRARY_PATH, and those of
// heterog, Python, PyTorch, OpenMP, CUDA, NCCL and Gloo.
std::vector<std::string> environment_to_pass();

}  // namespace heterog::launch

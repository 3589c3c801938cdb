// Starts the ranks of this host as processes of their own and ends all of them when one fails.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace heterog::launch {

struct LaunchOptions {
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;  // without the program's name
  // The names of all ranks' devices, as they are started (started_in_order); empty ones where
  // nothing tells more than the number.
  std::vector<std::string> device_names;
  bool quiet = false;  // what ranks print to stdout goes nowhere
  int first = 0;       // of the ranks on this host
  int count = 0;
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 0;  // 0: a free one, where rank 0 is among these
  // As of ChildrenOptions.
  std::chrono::milliseconds grace{1'500};
  std::optional<std::chrono::milliseconds> obey;
  // Ranks end together: how long after the first that ended well the others may take.
  std::chrono::milliseconds timeout{300'000};
  std::string if_lost = {};  // stands behind the message if a signal has ended a rank
};

// Returns when all ranks have ended well. What they write to stderr is passed on by line, after
// "[rank 1 a/gpu1] ". When one fails, the others are ended, and an Error of one line names it, its
// device and why; of kInput if it ended with that exit code, else of kVerification. SIGINT, SIGTERM
// and SIGHUP are passed on to all ranks; one that then ends by itself may say how far it has come.
// Ranks do not outlive this process. Call from the thread that lives
// longest: the kernel ends the ranks with it.
void launch_ranks(const LaunchOptions& options);

}  // namespace heterog::launch

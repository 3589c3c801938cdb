// Verbs of the program, run in somebody else's process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/ending.h"

namespace heterog::client {

struct RunVerb {
  cli::Ending ending;
  std::string output;  // what the program would have printed to stdout
};

// As the program with these arguments, but for what would touch the process: no process is started,
// this one is no rank, nothing is written to its stdout or stderr, and what PyTorch keeps for all
// of it is put back. Verbs of several threads wait for each other. `stop`: as in heterog.h.
RunVerb run_verb(const std::vector<std::string>& arguments, const std::int32_t* stop);

}  // namespace heterog::client

// heterog launch: ranks on the hosts of a hostfile.
#pragma once

#include "cli/verbs.h"

namespace heterog::cli {

void add_launch(CLI::App& app, Action& chosen);

}  // namespace heterog::cli

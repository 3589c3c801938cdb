// The verb that writes plans for other engines.
#pragma once

#include "cli/verbs.h"

namespace heterog::cli {

void add_hand_over(CLI::App& app, Action& chosen);

}  // namespace heterog::cli

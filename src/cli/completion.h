// Scripts with which a shell completes command lines of heterog.
#pragma once

#include <string>

#include "cli/verbs.h"

namespace heterog::cli {

// A script for "bash", "zsh" or "fish", made of the verbs and options of `app` and of the names
// that its options take (planners, orders, …).
std::string completion_script(const CLI::App& app, const std::string& shell);

void add_completion(CLI::App& app, Action& chosen);

}  // namespace heterog::cli

// The command line as a whole: every verb with its options, and how it runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace heterog::cli {

// `chosen` is set by parsing.
std::unique_ptr<CLI::App> make_app(Action& chosen);

// What is wrong with a command line that CLI11 refused, in one line, with the verb or option that
// was most likely meant.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

// What follows the program's name: runs the verb that it says, or prints the help that it asks for.
// Returns the exit code, or throws.
int run_arguments(const std::vector<std::string>& arguments, const Caller& caller);

}  // namespace heterog::cli

// The command line as a whole: every verb with its options, and how it runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace heterog::cli {

// `chosen` is set by parsing.
std::unique_ptr<CLI::App> make_app(Action& chosen);

// The mistake in a command line that CLI11 refused, in one line, with the verb or option that was
// most likely meant.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

// Runs the verb that the arguments behind the program's name say, or prints the help that they ask
// for. Returns the exit code, or throws.
int run_arguments(const std::vector<std::string>& arguments, const Caller& caller);

}  // namespace heterog::cli

// The command line as a whole: every verb with its options.
#pragma once

#include <memory>
#include <string>

#include "cli/verbs.h"

namespace heterog::cli {

// `chosen` is set by parsing.
std::unique_ptr<CLI::App> make_app(Action& chosen);

// What is wrong with a command line that CLI11 refused, in one line, with the verb or option that
// was most likely meant.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace heterog::cli

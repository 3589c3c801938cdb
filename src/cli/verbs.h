// The verbs of the command line: each adds its options to the app and what to do to `chosen`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/caller.h"

namespace heterog::cli {

// Set by the verb that the arguments name; returns its exit code.
using Action = std::function<int(const Caller&)>;

void add_train(CLI::App& app, Action& chosen);
void add_finetune(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_compare(CLI::App& app, Action& chosen);
void add_planners(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_diff(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_profile(CLI::App& app, Action& chosen);
void add_verify(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_tune(CLI::App& app, Action& chosen);
void add_shares(CLI::App& app, Action& chosen);
void add_autosync_data(CLI::App& app, Action& chosen);

}  // namespace heterog::cli

// The planners that the program has, and how a command line asks for one.
#pragma once

#include <memory>
#include <string>

#include "search/registry.h"

namespace heterog::cli {

// Joined from the tables of the folders that have planners, in the order of docs/design.md §9.
const search::Registry& planner_registry();

// The name of what `plan` does unless told otherwise.
inline constexpr const char* kPortfolio = "portfolio";

// The help on the word after --planner.
inline constexpr const char* kPlannerHelp =
    "One of `heterog planners`, with options as NAME:option=value,option=value";

// "NAME:option=value,…" as after --planner. A policy that is named (`--policy`) is the checkpoint
// of a planner that has one, unless its own options say otherwise. Throws an input error that names
// what is wrong, and what there is.
std::unique_ptr<const search::Planner> find_planner(const std::string& request,
                                                    const cluster::Cluster& cluster,
                                                    const std::string& policy = "");

}  // namespace heterog::cli

// What of the command line needs LibTorch, beside the verbs that do. The program and the library
// have it (with_torch.cc); the planner alone has what stands in its place (without_torch.cc), which
// also refuses those verbs.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "search/registry.h"

namespace heterog::cli {

// The planners that learn. Without LibTorch each is listed, and refused in one line.
std::vector<search::PlannerEntry> learned_planners();

// What LibTorch said, if the exception is one of its own.
std::optional<std::string> torch_error(const std::exception& error);

}  // namespace heterog::cli

// A problem at another batch: the same graph, machines and costs.
#pragma once

#include <cstdint>
#include <memory>

#include "loading/problem_files.h"

namespace heterog::loading {

// `options`: those that `problem` was loaded with. Nothing is read again but profiles.
std::unique_ptr<const cost::Problem> at_batch(const cost::Problem& problem,
                                              const ProblemOptions& options, std::int64_t batch);

}  // namespace heterog::loading

// The critical path in sentences, one per stretch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "explain/explanation.h"

namespace heterog::explain {

struct PathLine {
  Nanoseconds begin = 0;
  Nanoseconds length = 0;
  std::string what;
  std::string why;  // it starts then and no earlier; empty at the start of the step
};

// So many fit on a screen, beside the rest of an explanation.
inline constexpr std::size_t kPathLines = 24;
std::vector<PathLine> path_lines(const cost::Problem& problem, const sim::Simulated& simulated,
                                 const Explanation& explanation, std::size_t most = kPathLines);

}  // namespace heterog::explain

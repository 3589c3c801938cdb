// Why a plan's step takes as long as it does, as a person reads it.
#pragma once

#include <string>

#include "explain/explanation.h"

namespace heterog::explain {

// Bounds, critical path, and tables of what the step is spent on: one screen or two.
std::string explanation_text(const cost::Problem& problem, const sim::Simulated& simulated,
                             const Explanation& explanation);

}  // namespace heterog::explain

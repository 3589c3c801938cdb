// One line that says how the gradients of a plan travel.
#pragma once

#include <string>

#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::explain {

// "411.1 MB by all-reduce among 8 devices, 83.5 MB by parameter servers among 2 to 8 devices; 2.1
// MB stay where they are made": bytes of parameters, the most first.
std::string gradients_text(const cost::Problem& problem, const decide::Strategy& strategy);

// ", gradients compressed by fp16", or nothing.
std::string compression_words(const cost::Problem& problem);

}  // namespace heterog::explain

// The log of a training run: one JSON object a line and step.
#pragma once

#include <cstdint>
#include <string>

#include "learn/api.h"

namespace heterog::learn {

std::string log_line(const TrainProgress& progress);

// The lines of steps up to `step` of an earlier log ("" if there is none): what a stopped run wrote
// beyond its last checkpoint is written again, alike.
std::string log_up_to(const std::string& path, std::int64_t step);

}  // namespace heterog::learn

// A simulated step as people and programs read it: aligned tables, and JSON with units in the keys.
#pragma once

#include <string>

#include "cost/problem.h"
#include "explain/json.h"
#include "sim/simulator.h"

namespace heterog::explain {

// The keys of `simulate --json`.
OrderedJson simulation_json(const cost::Problem& problem, const sim::Simulated& simulated);

// Step time, bounds, devices and links.
std::string simulation_text(const cost::Problem& problem, const sim::Simulated& simulated);

// The memory of each device at its peak, by purpose.
std::string memory_text(const cost::Problem& problem, const sim::Simulated& simulated);

// "v100-0/gpu0 lacks 1.20 GB when addmm_3 starts, …": every device over its memory, the first
// to run out with the task.
std::string out_of_memory_text(const cost::Problem& problem, const sim::Simulated& simulated);

// Over all devices, what their peaks need beyond what they have.
Bytes missing_bytes(const sim::Simulated& simulated);

}  // namespace heterog::explain

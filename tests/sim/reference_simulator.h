// The slow, obvious simulator: decision 8 written literally, for the fast one to agree
// with.
#pragma once

#include "sim/simulator.h"

namespace heterog::sim {

// Start, end and dispatch order, step and peak memory, whether it fits and what is missing.
// Quadratic.
SimResult reference_simulate(const compiler::Plan& plan, decide::OrderPolicy order);

}  // namespace heterog::sim

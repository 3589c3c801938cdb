// The update of parameters and of their optimizer state.
#pragma once

#include "compiler/emit/emission.h"

namespace heterog::compiler {

// After all gradients are where they are read. One task on each device of a home's `update` layout
// for parameters that are updated alike, by an operator that takes lists, and become ready
// together: those of a collective, or those whose gradients do not travel, up to kTogetherBytes of
// them. All others are updated one by one.
void update_parameters(Emission& e);

// More would keep gradients for long, and save no time that could be seen.
inline constexpr Bytes kTogetherBytes = 64 << 20;

}  // namespace heterog::compiler

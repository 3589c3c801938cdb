// Parameters whose rows several servers have: rows of gradients are pushed to each, the new rows
// pulled from each (decision 20).
#pragma once

#include <span>

#include "compiler/emit/emission.h"

namespace heterog::compiler {

// Emits the pushes of each server's rows of a gradient, and the sums on their way and there, and
// notes where the rows are. `addends`: one per device that holds the parameter.
void push_parts(Emission& e, TensorId gradient, TensorId parameter,
                std::span<const Location> addends);

// Emits the pulls of each server's rows by all other devices that hold the parameter, over the old
// ones, after their readers.
void pull_parts(Emission& e, TensorId parameter);

}  // namespace heterog::compiler

// Random parameters, states, buffers and inputs: what no op of a step makes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string_view>

#include "graph/model_graph.h"
#include "runtime/kernels/execute.h"

namespace heterog::runtime {

// Whether an input is what the program itself sets at every step: "lr", the learning rate,
// "momentum", or "step", its number from 1.
bool is_setting(const graph::ModelGraph& graph, TensorId id, std::string_view name);

// A plausible value at `samples` samples: weights scaled by their fan-in, data in the range that
// was seen when the step was traced, else rows and labels in the range that their readers have,
// masks that leave something to see. Uses ATen's default generator: seed it first.
at::Tensor random_source(const graph::ModelGraph& graph, TensorId id, std::int64_t samples,
                         Floats floats);

}  // namespace heterog::runtime

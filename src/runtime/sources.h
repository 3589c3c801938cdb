// Random parameters, states, buffers and inputs: what no op of a step makes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "graph/model_graph.h"
#include "runtime/execute.h"

namespace heterog::runtime {

// A plausible value at `samples` samples: weights scaled by their fan-in, rows and labels in the
// range that their readers have, masks that leave something to see. Uses ATen's default generator:
// seed it first.
at::Tensor random_source(const graph::ModelGraph& graph, TensorId id, std::int64_t samples,
                         Floats floats);

}  // namespace heterog::runtime

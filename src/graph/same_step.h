// Comparison of two graphs: are they one training step, on inputs of other sizes?
#pragma once

#include <string>

#include "graph/model_graph.h"

namespace heterog::graph {

// The difference of two graphs beside sizes, in words that follow "the graphs differ: "; empty:
// nothing. Ops, tensors and who reads what are the same; numbers in arguments and the lengths of
// dimensions may be others, but for what a step replaces (parameters, state, running statistics),
// which has one shape. Whether a dimension depends on the batch is the same too.
std::string difference_beside_sizes(const ModelGraph& one, const ModelGraph& other);

}  // namespace heterog::graph

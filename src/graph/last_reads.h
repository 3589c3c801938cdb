// Last reads of a step: the tensors that no later op reads.
#pragma once

#include <vector>

#include "graph/model_graph.h"

namespace heterog::graph {

// For each op the tensors that nothing reads after it; sources and outputs outlive the step.
IdVector<OpId, std::vector<TensorId>> dead_after(const ModelGraph& graph);

}  // namespace heterog::graph

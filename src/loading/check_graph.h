// Whether PyTorch would run a graph: asked where there is LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "graph/known_batches.h"
#include "graph/model_graph.h"

namespace heterog::loading {

// Throws an input error, naming `source`, if the graph needs an operator that LibTorch does not
// have, or declares another result than it gives at this batch. In the planner without LibTorch it
// accepts every graph (no_check_graph.cc).
void check_graph(const graph::ModelGraph& graph, std::int64_t batch,
                 const graph::KnownBatches& known, const std::string& source);

}  // namespace heterog::loading

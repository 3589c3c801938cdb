// Forms of update chains: which chains do the same, and which of their ops can run for many of them
// at once.
#pragma once

#include <vector>

#include "graph/folded.h"

namespace heterog::graph {

// Sets UpdateChain::form and ::shared_calls.
void find_forms(const ModelGraph& graph, std::vector<UpdateChain>& chains);

}  // namespace heterog::graph

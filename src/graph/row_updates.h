// Update chains that devices may share, each for some rows of the parameter.
#pragma once

#include <vector>

#include "graph/folded.h"

namespace heterog::graph {

// Sets UpdateChain::by_rows and ::row_state. By rows is a chain of ops that work an element at a
// time on tensors of the parameter's shape and on numbers, none of whose results, and none of whose
// state, is read by an op outside of it.
void find_row_updates(const ModelGraph& graph, std::vector<UpdateChain>& chains);

}  // namespace heterog::graph

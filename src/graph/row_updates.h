// Update chains that devices may share, each for some rows of the parameter.
#pragma once

#include <vector>

#include "graph/folded.h"

namespace heterog::graph {

// Sets UpdateChain::by_rows and ::row_state. By rows is a chain of ops that work an element at a
// time on tensors of the parameter's shape and on numbers, none of whose results, and none of whose
// state, is read by an op outside of it.
void find_row_updates(const ModelGraph& graph, std::vector<UpdateChain>& chains);

// The form of a gradient, itself or a view of it, that has the parameter's shape and is all that
// anybody reads of it, and nobody but the parameter's chain does. Invalid if there is none.
TensorId form_for_update(const ModelGraph& graph, const UpdateChain& chain, TensorId gradient);

}  // namespace heterog::graph

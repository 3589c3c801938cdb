// Which operators PyTorch has.
#pragma once

#include <string>

#include "graph/model_graph.h"

namespace heterog::runtime {

// Throws an input error, naming `source`, the op and the operator, if the graph uses an operator
// that the LibTorch of this program does not have.
void check_operators(const graph::ModelGraph& graph, const std::string& source);

}  // namespace heterog::runtime

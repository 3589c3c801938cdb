// Operators that PyTorch has.
#pragma once

#include <string>
#include <string_view>

#include "graph/model_graph.h"

namespace heterog::runtime {

// "aten.add.Tensor" → "aten::add" and "Tensor"; the overload "default" has no name in PyTorch.
struct OperatorName {
  std::string name;
  std::string overload;
};
OperatorName operator_name(std::string_view type);

// Throws an input error, naming `source`, the op and the operator, if the graph uses an operator
// that the LibTorch of this program does not have, or gives it other arguments than it takes.
void check_operators(const graph::ModelGraph& graph, const std::string& source);

}  // namespace heterog::runtime

// Classes of ops of a graph that do the same work.
#pragma once

#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::measure {

// Operator, operands with dtype, shape and the views that they are seen through, attributes: two
// ops of the same form take the same time on the same number of samples.
// "aten.mm.default(float32[B,32], aten.t.default(float32[10,32]))".
std::string form_of(const graph::ModelGraph& graph, OpId op);

struct DistinctOp {
  std::string form;
  std::vector<OpId> ops;  // ascending
  bool batched = false;   // something about it depends on the batch
};
// Every op but aliases, each once; in order of the first op of each form.
std::vector<DistinctOp> distinct_ops(const graph::ModelGraph& graph);

}  // namespace heterog::measure

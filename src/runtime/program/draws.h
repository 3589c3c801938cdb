// Random operators of a graph, and where their numbers come from.
#pragma once

#include "graph/model_graph.h"

namespace heterog::runtime {

// Whether the op draws numbers that follow from where its elements stand in the batch: runtime/exec
// draws them (draw.h, attention.h), and the operator itself is not called.
bool is_drawn_by_counter(const graph::ModelGraph& graph, OpId op);
// The share of a dropout's elements that are dropped, or of an attention's weights.
double dropped_share(const graph::ModelGraph& graph, OpId op);
// The op whose numbers this one draws: itself or, for an attention's gradient, the forward op.
OpId drawn_for(const graph::ModelGraph& graph, OpId op);

// Whether the op draws from PyTorch's generator, of which there is one for all threads. An op whose
// arguments say that nothing is drawn (not in training, a dropout of 0) does not.
bool draws_from_generator(const graph::ModelGraph& graph, OpId op);

}  // namespace heterog::runtime

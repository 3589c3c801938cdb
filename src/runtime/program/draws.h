// Which operators of a graph draw random numbers, and where these come from.
#pragma once

#include "graph/model_graph.h"

namespace heterog::runtime {

// Whether the op draws numbers that follow from where its elements stand in the batch: runtime/exec
// draws them (draw.h, attention.h), and the operator itself is not called.
bool is_drawn_by_counter(const graph::ModelGraph& graph, OpId op);
// Of a dropout, the share of its elements that are dropped; of an attention, of its weights.
double dropped_share(const graph::ModelGraph& graph, OpId op);
// Whose numbers the op draws: its own, or, of an attention's gradient, those of the forward op.
OpId drawn_for(const graph::ModelGraph& graph, OpId op);

// Whether the op draws from PyTorch's generator, of which there is one for all threads. An op whose
// arguments say that nothing is drawn (not in training, a dropout of 0) does not.
bool draws_from_generator(const graph::ModelGraph& graph, OpId op);

}  // namespace heterog::runtime

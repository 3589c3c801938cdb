// Aggregation of the gradients of replicated parameters.
#pragma once

#include "compiler/emit/emission.h"

namespace heterog::compiler {

struct Gradient {
  TensorId tensor;     // holds the memory
  TensorId parameter;  // whose update reads it
  OpId producer;
};

// Partial sums that update ops of one parameter read, or sums that run where it is updated, in
// order of production: the order in which they become ready.
std::vector<Gradient> partial_gradients(const cost::Problem& problem, const decide::Layout& layout);

// After all forward and backward ops. What several instances of one device made is accumulated
// there; then pushes and sums at parameter servers, all-reduces (buckets of up to `bucket_bytes`)
// among replicas (decisions 4 to 6). Gradients of embeddings travel as rows, each alone, where that
// moves fewer bytes. What the user allows to be compressed is (decision 22), but for such rows;
// a bucket's bytes are those of the gradients as they are.
void aggregate_gradients(Emission& e, Bytes bucket_bytes);

}  // namespace heterog::compiler

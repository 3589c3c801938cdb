// Collectives of sharded parameters: gradients are scattered to those who have the rows, and the new
// rows gathered from them (decision 19).
#pragma once

#include "compiler/emit/bucket.h"

namespace heterog::compiler {

// Whether nobody but the update by rows reads the gradient, and all who hold the parameter, and
// nobody else, have an addend of it.
bool may_scatter(const Emission& e, TensorId gradient, TensorId parameter,
                 std::span<const Location> addends);

// Emits the reduce-scatter of gradients of the parameters, parallel to the values, which all are
// sharded over the same devices, and notes where the rows are. Every part is padded to the longest
// of its tensor, as rings of equal parts have it.
void scatter_bucket(Emission& e, const Bucket& bucket, std::span<const TensorId> parameters);

// Emits the all-gather of each set of Emission::sharded_sets, over the old values, after their
// readers.
void gather_sharded(Emission& e);

}  // namespace heterog::compiler

// Collectives of sharded parameters: gradients are scattered to those who have the rows, and the
// new rows gathered from them (decision 19).
#pragma once

#include "compiler/emit/bucket.h"

namespace heterog::compiler {

// The form of the gradient that can be scattered: nobody but the update by rows reads it, and all
// who hold the parameter, and nobody else, have an addend of it. Invalid if there is none.
TensorId scattered_form(const Emission& e, TensorId gradient, TensorId parameter,
                        std::span<const Location> addends);

// A gradient that is scattered: what of it is, and whose it is.
struct Scattered {
  TensorId form;
  TensorId parameter;
};

// Emits the reduce-scatter of gradients, parallel to the values, whose parameters all are sharded
// over the same devices, and notes where the rows are. Every part is padded to the longest of its
// tensor, as rings of equal parts have it.
void scatter_bucket(Emission& e, const Bucket& bucket, std::span<const Scattered> gradients);

// What an all-gather of parameters, dealt by rows over the same devices, moves in all: each part is
// padded to the longest.
Bytes gathered_bytes(const Emission& e, std::span<const TensorId> parameters);
// Each member gives the elements that are its rows of all of them, and has no others.
void contribute_rows(Emission& e, TaskId gather, std::span<const TensorId> parameters);

// Emits the all-gather of each set of Emission::sharded_sets, over the old values, after their
// readers.
void gather_sharded(Emission& e);

}  // namespace heterog::compiler

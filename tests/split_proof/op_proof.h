// Executes one op on a whole batch and on its slices, and compares under the rules of the table.
#pragma once

#include <string>

#include "graph/split.h"
#include "split_proof/slices.h"

namespace heterog::split_proof {

// Empty if the slices make the whole, else what differs. `op` must be sliceable. Random operators
// are held to what does not depend on chance: the sizes of their results, and of a dropout that the
// result is the operand under the mask. Batch normalisation, whose statistics are those of the
// slice by design, is executed on slices that all have the same content; of random slices its
// running mean alone must agree.
std::string prove_op(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits, OpId op,
                     const SliceSizes& sizes);

// Says all that an outcome of prove_op depends on: operator, arguments, sizes, uses, rules.
std::string form_of(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits, OpId op);

}  // namespace heterog::split_proof

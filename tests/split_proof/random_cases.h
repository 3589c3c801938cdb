// Cases near the hand-written ones, drawn at random: other sizes, other numbers, other operands.
#pragma once

#include "base/rng.h"
#include "split_proof/cases.h"

namespace heterog::split_proof {

// The case with one to three changes: all batches k times as many rows; a size that becomes another
// constant or multiple of the batch; an operand that becomes a partial sum, a mean, two runs of the
// batch, numbers of rows, or like its neighbour; a number that becomes another one, or one that
// depends on the batch (#aB+c, $aB+c). Most of what comes out is nothing that the operator can do;
// what it can do, a rule must either prove or refuse.
Case random_case(const Case& example, Rng& rng);

// Kernels that read what their operands say without looking at the sizes: their cases are only
// given more rows.
bool trusts_operands(const std::string& type);

}  // namespace heterog::split_proof

// Recomputation: which ops run again for the backward pass, and for whom.
#pragma once

#include <span>
#include <vector>

#include "base/csr.h"
#include "cost/problem.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Decision 16. Of a unit that recomputes, ops of the forward pass run again just before the
// backward ops of these ops need what they make, so that it need not be kept meanwhile. What the
// unit's backward ops read of it is then made twice; everybody else reads the first one. What its
// forward ops read from outside is kept, and so is what is the same on all slices, adds up, or
// replaces what stays: these ops do not run again.
struct Recomputation {
  bool any = false;
  IdVector<OpId, UnitId> serves;  // backward ops: the recomputing unit of their forward op
  Csr<UnitId, OpId> again;        // in their order
  IdVector<OpId, std::uint8_t> runs_again;
  IdVector<UnitId, OpId> first;  // the backward op before which they run; invalid: none
};

Recomputation find_recomputation(const cost::Problem& problem, const Strategy& strategy);

}  // namespace heterog::decide

// Ops and updates, with everything that they read.
#pragma once

#include "compiler/emit/emission.h"
#include "graph/folded.h"

namespace heterog::compiler {

// The compute tasks of an op, one per instance.
void emit_op(Emission& e, OpId op);

// The update tasks of a parameter, one per device of its home's `update` layout.
void emit_update(Emission& e, const graph::UpdateChain& chain);

}  // namespace heterog::compiler

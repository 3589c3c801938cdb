// Ops that run again for the backward pass.
#pragma once

#include "compiler/emit/emission.h"

namespace heterog::compiler {

// Emits what runs again before `op`, which is about to be emitted. Each instance waits for what
// comes down the backward pass to `op`'s unit on its samples, lest it run at once.
void emit_again(Emission& e, OpId op);

}  // namespace heterog::compiler

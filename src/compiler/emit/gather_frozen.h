// Gathers of frozen tensors that lie in rows (decision 23).
#pragma once

#include <utility>
#include <vector>

#include "compiler/emit/fetch.h"

namespace heterog::compiler {

// The whole of a frozen tensor where an instance reads it, in the pass that is emitted: from the
// gather of its round, which is emitted if it was not yet.
//
// A gather waits for those who read what was gathered two before, so that two are held at a time,
// one that is read and the next.
Source whole_frozen(Emission& e, const Reader& reader, TensorId tensor, DeviceId device);

// `task` is the instance: later gathers wait for it.
void note_frozen_reader(Emission& e, const Reader& reader, TensorId tensor, TaskId task);

// The first gathers of a micro-batch wait for the one before it, too, once all has been emitted:
// for the end of its backward pass where each micro-batch has both passes before the next, else for
// that of its forward pass. Pairs of who is waited for and who waits.
std::vector<std::pair<TaskId, TaskId>> waits_between_rounds(const Emission& e,
                                                            decide::Pattern pattern);

}  // namespace heterog::compiler

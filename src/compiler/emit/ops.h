// Ops with everything that they read.
#pragma once

#include <span>

#include "compiler/emit/emission.h"
#include "graph/folded.h"

namespace heterog::compiler {

// The unit that an op runs again for, and the tasks that it then waits for beside those that it
// reads from: the instances of `gate` on the same samples. Neither: it runs for the first time.
struct Again {
  UnitId unit;
  OpId gate;
};

// The compute tasks of an op, one per instance, one behind the other; returns the first.
TaskId emit_op(Emission& e, OpId op, const Again& again = {});

// Brings what each instance of the layout reads; e.sources has it then, instance by instance.
void fetch_all(Emission& e, OpId op, decide::LayoutId layout, std::span<const graph::Read> reads);
// The task reads what was brought for an instance, after whoever brought it.
void read_all(Emission& e, TaskId task, std::size_t instance);
// A tensor that stays is written in place, after everyone who reads the old value.
void replace(Emission& e, TensorId tensor, DeviceId device, Bytes bytes, TaskId writer);

}  // namespace heterog::compiler

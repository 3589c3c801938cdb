// Ops with everything that they read.
#pragma once

#include <span>

#include "compiler/emit/emission.h"
#include "graph/folded.h"

namespace heterog::compiler {

// The compute tasks of an op, one per instance.
void emit_op(Emission& e, OpId op);

// Brings what each instance of the layout reads; e.sources has it then, instance by instance.
void fetch_all(Emission& e, OpId op, LayoutId layout, std::span<const graph::Read> reads);
// The task reads what was brought for an instance, after whoever brought it.
void read_all(Emission& e, TaskId task, std::size_t instance);
// What stays is written in place, after everyone who reads the old value.
void replace(Emission& e, TensorId tensor, DeviceId device, Bytes bytes, TaskId writer);

}  // namespace heterog::compiler

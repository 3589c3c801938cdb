// Emits a unit's ops once more, behind what comes down the backward pass.
#include "compiler/emit/recompute.h"

#include <algorithm>

#include "compiler/emit/ops.h"

namespace heterog::compiler {
namespace {

using graph::Phase;

// What runs again waits for this: what comes down the backward pass from another unit to the ops
// that it is for, or else the last that they read of the forward pass.
OpId gate_of(const cost::Problem& problem, const decide::Recomputation& found, OpId first) {
  const UnitId unit = found.serves[first];
  OpId gate, forward;
  for (OpId op : problem.folded->ops) {
    if (found.serves[op] != unit) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || read.producer >= first) continue;
      const bool from_backward = problem.graph->op(read.producer).phase == Phase::kBackward;
      if (from_backward && found.serves[read.producer] == unit) continue;
      OpId& latest = from_backward ? gate : forward;
      if (!latest.valid() || read.producer > latest) latest = read.producer;
    }
  }
  return gate.valid() ? gate : forward;
}

}  // namespace

void emit_again(Emission& e, OpId op) {
  const decide::Recomputation& found = e.recomputation;
  const UnitId unit = found.serves[op];
  e.where.read_for(UnitId());
  if (!unit.valid()) return;
  if (found.first[unit] == op) {
    const OpId gate = gate_of(e.problem, found, op);
    e.where.read_for(unit);
    for (OpId again : found.again[unit]) {
      const bool follows =
          std::ranges::any_of(e.problem.folded->reads[again], [&](const graph::Read& read) {
            return read.producer.valid() && found.runs_again[read.producer] &&
                   e.where.made_again_for(read.producer) == unit;
          });
      const TaskId first = emit_op(e, again, {unit, follows ? OpId() : gate});
      const auto count = static_cast<std::uint32_t>(e.layout.op_slices(again).size());
      e.again.push_back({first, count, op});
    }
  }
  e.where.read_for(unit);
}

}  // namespace heterog::compiler

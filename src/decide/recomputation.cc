// Walks each unit's forward ops backwards from what its backward ops read.
#include "decide/recomputation.h"

#include <algorithm>

namespace heterog::decide {
namespace {

using graph::Phase;
using graph::SplitKind;

// Whether each instance of the op makes samples of its own out of samples, and nothing else.
bool can_run_again(const cost::Problem& problem, OpId op) {
  if (problem.graph->op(op).phase != Phase::kForward || !problem.splits->sliceable[op])
    return false;
  for (TensorId out : problem.graph->outputs(op)) {
    if (!out.valid()) continue;
    const SplitKind kind = problem.splits->rules[out].kind;
    if (problem.graph->tensor(out).replaces.valid()) return false;
    if (kind != SplitKind::kConcat && kind != SplitKind::kLocal) return false;
  }
  // A statistic may have its next value by then.
  return std::ranges::none_of(problem.folded->reads[op], [&](const graph::Read& read) {
    if (read.producer.valid()) return false;
    const OpId updater = problem.folded->updater[read.base];
    return updater.valid() && problem.graph->op(updater).phase != Phase::kUpdate;
  });
}

}  // namespace

Recomputation find_recomputation(const cost::Problem& problem, const Strategy& strategy) {
  Recomputation found;
  found.any = std::ranges::any_of(strategy.units, &UnitDecision::recompute);
  if (!found.any) return found;
  const graph::ModelGraph& graph = *problem.graph;
  const auto& ops = problem.folded->ops;
  found.serves.resize(graph.op_count());
  found.first.resize(strategy.units.size());
  IdVector<OpId, UnitId> unit(graph.op_count());
  for (OpId op : ops) {
    unit[op] = unit_of(problem, strategy, op);
    if (graph.op(op).phase != Phase::kBackward) continue;
    const OpId forward = graph.op(op).forward;
    const UnitId of = forward.valid() ? unit_of(problem, strategy, forward) : unit[op];
    if (strategy.units[of].recompute) found.serves[op] = of;
  }
  IdVector<OpId, std::uint8_t>& again = found.runs_again;
  again.assign(graph.op_count(), 0);
  for (std::size_t i = ops.size(); i-- > 0;) {
    const OpId op = ops[i];
    const UnitId reader = again[op] ? unit[op] : found.serves[op];
    if (!reader.valid()) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || unit[read.producer] != reader ||
          !can_run_again(problem, read.producer)) {
        continue;
      }
      again[read.producer] = 1;
      if (!again[op]) found.first[reader] = op;
    }
  }
  std::vector<std::pair<UnitId, OpId>> pairs;
  for (OpId op : ops) {
    if (again[op]) pairs.emplace_back(unit[op], op);
  }
  found.again = Csr<UnitId, OpId>::from_pairs(strategy.units.size(), pairs);
  return found;
}

}  // namespace heterog::decide

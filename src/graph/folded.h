// The graph as planners see it: aliases folded into the ops that read through them.
#pragma once

#include <vector>

#include "base/csr.h"
#include "graph/model_graph.h"
#include "graph/split.h"

namespace heterog::graph {

// One tensor that an op reads. An alias that costs nothing is looked through: `tensor` is the base,
// or the alias where that is smaller (select, slice), since only what is read has to travel.
struct Read {
  TensorId tensor;  // what a transfer would carry
  TensorId base;    // what holds the memory
  OpId producer;    // of the base; invalid for inputs, parameters, buffers, optimizer state
  OperandUse use = OperandUse::kSame;
  SplitRule rule;   // of `tensor`
};

struct FoldedGraph {
  // Ops that become tasks: all but the aliases that can be sliced. Ascending.
  std::vector<OpId> ops;
  // Of every op in `ops`: distinct tensors in order of first appearance; empty for folded ops.
  Csr<OpId, Read> reads;
  // The parameter whose devices an update op runs on: the only one that it updates, or else the only
  // one whose gradient it has seen. Invalid for other ops.
  IdVector<OpId, TensorId> home;
  // Forward and backward ops that read a parameter, ascending; empty for other tensors.
  Csr<TensorId, OpId> parameter_readers;
  // The op that makes a parameter's next value; invalid if it is never updated.
  IdVector<TensorId, OpId> updater;
};

FoldedGraph fold_aliases(const ModelGraph& graph, const SplitAnalysis& splits);

}  // namespace heterog::graph

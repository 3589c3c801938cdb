// The graph as planners see it: aliases folded into the ops that read through them.
#pragma once

#include <algorithm>
#include <cstdint>
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
  SplitRule rule;  // of `tensor`
};

// How an op of an update chain runs where several chains of one form run side by side.
enum class SharedCall : std::uint8_t {
  kApart,  // for each chain by itself
  kLists,  // in one call for all, which takes lists of tensors
  kOnce,   // for one of them: it reads numbers that all chains share, so its result is the same
};

// The ops that compute the next values of one parameter and its optimizer state and nothing else.
// They run back to back where the parameter is updated, as one task.
struct UpdateChain {
  TensorId parameter;
  std::vector<OpId> ops;      // ascending; aliases left out
  std::vector<Read> reads;    // what the chain reads from outside itself
  Bytes temporary_bytes = 0;  // the most that its own intermediate values take at one time
  // Chains of one form do the same, op by op, with the same numbers and with tensors of their own.
  std::uint32_t form = 0;
  std::vector<SharedCall> calls;  // parallel to `ops`
  // Whether each row (along axis 0) of what it makes follows from the same row of what it reads,
  // and from numbers: then devices may share the update, each for rows of its own (decision 19).
  bool by_rows = false;
  std::vector<TensorId> row_state;  // by_rows: the optimizer state that has such rows, ascending
  // Whether chains of its form gain by running together: a call serves several.
  bool shares_calls() const {
    return std::ranges::any_of(calls, [](SharedCall c) { return c == SharedCall::kLists; });
  }
};

// A forward op that makes of parameters alone what every sample reads: a copy of a weight in half
// precision, say.
struct ParameterOp {
  OpId op;
  std::vector<OpId> readers;  // forward and backward ops, ascending
};

// An op that adds up gradients of a tied parameter (an embedding that is the output's weight too),
// one of each way in which the forward pass uses it.
struct TiedSum {
  OpId op;
  TensorId parameter;
};

struct FoldedGraph {
  // Ops that become tasks of their own: all but the aliases that can be sliced and the members of
  // update chains. Ascending.
  std::vector<OpId> ops;
  std::vector<UpdateChain> chains;  // in id order of their parameters
  // Distinct tensors that each op reads, in order of first appearance; empty for aliases that can
  // be sliced.
  Csr<OpId, Read> reads;
  // The parameter whose devices an update op runs on: the only one that it updates, or else the
  // only one whose gradient it has seen (its norm, say). Invalid for other ops.
  IdVector<OpId, TensorId> home;
  // Forward and backward ops that read a parameter, ascending; empty for other tensors.
  Csr<TensorId, OpId> parameter_readers;
  // Descending, so that a reader that is one of them comes before what it reads.
  std::vector<ParameterOp> parameter_ops;
  // The op that makes the next value of a parameter, or of anything else that stays; invalid if it
  // is never updated.
  IdVector<TensorId, OpId> updater;
  // Next values of what stays, parameters left out, whose old values are read by an op that need
  // not run where the next one is made. Ascending.
  std::vector<TensorId> read_elsewhere;
  // Of partial sums alone, for updates of that parameter alone; also what is linear in such a sum
  // and read by them alone (a cast). Ascending.
  std::vector<TiedSum> tied_sums;
};

// The chain of a parameter that has one.
const UpdateChain& chain_of(const FoldedGraph& folded, TensorId parameter);

FoldedGraph fold_aliases(const ModelGraph& graph, const SplitAnalysis& splits);

}  // namespace heterog::graph

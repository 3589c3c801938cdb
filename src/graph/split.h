// Split rules of a graph: the effect of each op on a slice of the batch (docs/design.md §4.2).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/csr.h"
#include "graph/model_graph.h"

namespace heterog::graph {

// How the values that the slices hold make the value of the whole batch.
enum class SplitKind : std::uint8_t {
  kConcat,  // slices of one dimension, side by side
  kSum,     // partial sums
  kMean,    // to be weighted by the slices' shares
  kSame,    // does not depend on the slice: every instance has the whole value
  kLocal,   // belongs to its slice and has no meaning for the whole (batch-norm statistics kept for
            // backward): only a consumer on the same slice can read it
  kWhole,   // the op runs once, on the whole batch
};
std::string_view split_kind_name(SplitKind kind);

struct SplitRule {
  SplitKind kind = SplitKind::kWhole;
  std::uint8_t dim = 0;    // kConcat: the dimension that is sliced
  std::int64_t outer = 1;  // kConcat: view `dim` as outer × rest; `rest` is what is sliced
  friend bool operator==(const SplitRule&, const SplitRule&) = default;
};

// How an op that runs on a slice reads one of its operands.
enum class OperandUse : std::uint8_t {
  kSlice,    // its own slice of a kConcat value
  kSame,     // the whole value, the same on every instance
  kPartial,  // its own partial sum or mean: the op is linear in it
  kOnce,     // a kSame addend to a partial sum: kept on the first instance, left out on the others
  kReduced,  // a kSum or kMean value that must first be reduced over the slices
  kLocal,    // a kLocal value of the same slice
  kWhole,    // the whole value, gathered (the op itself is kWhole)
};

struct SplitAnalysis {
  // The rule of every tensor. Results of an op that runs whole are kWhole. Inputs with a batch
  // dimension are kConcat; inputs without one, parameters, buffers and optimizer state are kSame.
  IdVector<TensorId, SplitRule> rules;
  // Parallel to graph.inputs(op).
  Csr<OpId, OperandUse> uses;
  // The op can run on slices. False: it runs once, on everything (decision 1).
  IdVector<OpId, std::uint8_t> sliceable;
  // Why not (static strings), empty where sliceable.
  IdVector<OpId, std::string_view> reason;
};

// One walk in topological order. An op that the table of rules lacks is kWhole, never guessed.
// Batch statistics are per slice, as in every data-parallel framework.
SplitAnalysis analyze_splits(const ModelGraph& graph);

// The rule by which a reader on a slice sees a tensor: its own, or, of one that was made whole, its
// first dimension that depends on the batch (kSame if none does).
SplitRule seen_rule(const ModelGraph& graph, const SplitAnalysis& splits, TensorId tensor);

// True if the table has a rule for this ATen overload ("aten.mm.default").
bool has_split_rule(std::string_view type);

}  // namespace heterog::graph

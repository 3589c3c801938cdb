// What the operators of a graph make of their operands, by PyTorch's own rules, beside what the
// file says that they make.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::runtime {

// The results of an op, flat and without memory, of operands without memory (of the device "meta"),
// which are parallel to graph.inputs(op). Nothing where only the call itself tells: the operator
// has neither a kernel for such tensors nor a rule (result_rules.h). Throws what the operator
// throws for operands that do not go together.
std::optional<std::vector<at::Tensor>> infer_results(const graph::ModelGraph& graph, OpId op,
                                                     std::span<const at::Tensor> operands,
                                                     std::int64_t batch);

// Walks the graph at each of the batches and compares what its ops make with what it declares: how
// many results, their dtypes, their sizes. Throws an input error that names `source`, the op, the
// result, what is declared and what the operator gives. Takes no memory for values, and asks
// LibTorch once for all ops that are alike.
void check_results(const graph::ModelGraph& graph, std::span<const std::int64_t> batches,
                   const std::string& source);

// Two batches at which a graph that holds from `smallest` on is checked when it is used at `batch`:
// sizes follow the batch in a line, so that two tell.
std::vector<std::int64_t> checked_batches(std::int64_t batch, std::int64_t smallest);

}  // namespace heterog::runtime

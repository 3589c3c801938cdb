// Inferred results of the operators of a graph, by PyTorch's own rules, to compare with those that
// the file states.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::runtime {

// How many ops were held against what the graph declares.
struct InferredOps {
  std::size_t inferred = 0;
  // The operators of ops of which only the call itself tells: they have neither a kernel for
  // tensors without memory nor a rule (result_rules.h), or the values of operands decide.
  // OperatorCall::call checks those.
  std::vector<std::string> left;
  std::size_t asked = 0;  // questions to LibTorch: ops that are alike are one
};

// Walks the graph at each of the batches and compares what its ops make with what it declares: how
// many results, their dtypes, their sizes. Throws an input error that names `source`, the op, the
// result, what is declared and what the operator gives. Takes no memory for values.
InferredOps check_results(const graph::ModelGraph& graph, std::span<const std::int64_t> batches,
                          const std::string& source);

// Two batches at which a graph that holds from `smallest` on is checked when it is used at `batch`:
// sizes follow the batch in a line, so that two tell.
std::vector<std::int64_t> checked_batches(std::int64_t batch, std::int64_t smallest);

}  // namespace heterog::runtime

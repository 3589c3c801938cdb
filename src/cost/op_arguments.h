// The arguments of operators that decide how much they compute and move.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/units.h"
#include "graph/model_graph.h"
#include "operators/facts.h"

namespace heterog::cost {

using operators::Family;

// A tensor argument, invalid where the argument is missing or no tensor.
TensorId tensor_arg(std::span<const graph::Value> args, std::size_t index);
TensorId first_output(const graph::ModelGraph& graph, OpId op);

// Bytes that reading a tensor moves: a view that repeats its base (expand) reads the base.
Bytes read_bytes(const graph::ModelGraph& graph, TensorId id, std::int64_t samples);

// What a product by a packed weight (operand 1, of bytes) unpacks first, in the dtype of operand 0:
// two numbers a byte. 0 for all other products.
Bytes unpacked_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples);

// Arguments that convolution and convolution_backward have in common.
struct Convolution {
  TensorId input, weight, output;  // backward: output is its gradient
  const graph::Value* stride = nullptr;
  const graph::Value* dilation = nullptr;
  bool transposed = false;
  std::int64_t groups = 1;
};
Convolution convolution(const graph::ModelGraph& graph, OpId op, Family kind);
// Which gradients convolution_backward computes: of the input, the weight, the bias.
std::array<bool, 3> gradient_mask(const graph::ModelGraph& graph, OpId op);
// The products of an attention, forward or backward: so many of [heads, queries, width] by
// [heads, width, keys]. Under a causal mask the heads count half: half of the scores are left out.
struct AttentionSize {
  double products = 0;
  double samples = 0;          // rows of dimension 0
  double heads = 0;            // of all samples
  double heads_of_sample = 0;  // whatever the mask
  double queries = 0, keys = 0, width = 0;
  bool drops = false;  // weights, which are then written down, of some samples at a time
};
AttentionSize attention_size(const graph::ModelGraph& graph, OpId op, std::int64_t samples);
// Strides or dilations that all are 1.
bool all_ones(const graph::Value* steps);

}  // namespace heterog::cost

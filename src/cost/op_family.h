// Which operators are alike in what they compute, and the arguments that decide how much.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "graph/model_graph.h"

namespace heterog::cost {

// Operators whose work is computed alike.
enum class Family : std::uint8_t {
  kElementwise,  // reads its operands, writes its results: also what is not listed below
  kReduction,    // the same traffic
  kSoftmax,      // the same traffic
  kPooling,      // the same traffic
  kCopy,         // the same traffic
  kFill,         // writes its result, reads nothing of its operands
  kEmpty,        // touches no memory
  kMatMul,       // operands 0 and 1
  kMatMulAdd,    // operands 1 and 2, operand 0 is added
  kConvolution,
  kConvolutionBackward,
  kBatchNorm,            // reads its input twice: statistics, then the values
  kBatchNormBackward,    // reads gradient and input twice
  kLayerNorm,            // a row stays on the chip between statistics and values
  kLayerNormBackward,    // one pass for the input's gradient, one for those of scale and shift
  kGather,               // reads the rows that it picks, not the table
  kScatterAdd,           // clears the whole table, then adds rows
  kIndexedLoss,          // reads one element a row
  kIndexedLossBackward,  // clears the result, writes one element a row
  kPoolingBackward,      // its forward's input, operand 1, gives a shape and no values
};

Family family(std::string_view type);  // of "aten.mm.default", …

// A tensor argument, invalid where the argument is missing or no tensor.
TensorId tensor_arg(std::span<const graph::Value> args, std::size_t index);
TensorId first_output(const graph::ModelGraph& graph, OpId op);

// Bytes that reading a tensor moves: a view that repeats its base (expand) reads the base.
Bytes read_bytes(const graph::ModelGraph& graph, TensorId id, std::int64_t samples);

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
// Strides or dilations that all are 1.
bool all_ones(const graph::Value* steps);

}  // namespace heterog::cost

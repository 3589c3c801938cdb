// Scaled dot-product attention as one operator: the kernel of a device, or written out.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "graph/model_graph.h"
#include "runtime/kernels/random.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// Whether `op` is attention, forward or backward (aten._scaled_dot_product_flash_attention_for_cpu
// and its gradient: the one fused form whose results do not depend on the kind of device).
bool is_attention(const graph::ModelGraph& graph, OpId op);

// An attention's arguments; backward alone has what stands in the second paragraph.
struct Attention {
  at::Tensor query, key, value;  // [N, H, L, E], [N, H, S, E]
  at::Tensor mask;               // undefined: none
  double rate = 0;               // of weights that are dropped
  bool causal = false;
  double scale = 1;

  at::Tensor gradient, result;  // [N, H, L, E]
  at::Tensor log_sums;          // [N, H, L]
};

Attention attention_of(const graph::ModelGraph& graph, OpId op,
                       std::span<const at::Tensor> operands);

// Samples [begin, begin + count), which are computed together.
struct Block {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  at::Tensor of(const at::Tensor& value) const { return value.narrow(0, begin, count); }
};

// Room for the gradient of an operand, as the kernel of CPUs lays it out: [N, L, H, E] in memory.
// A result lies as the query does.
at::Tensor empty_gradient(const at::Tensor& operand);

// Numbers of 16 bits.
inline bool is_half(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
}

// Which weights stay of samples [begin, begin + count) of the operands, bool [count, H, L, S].
at::Tensor kept_weights(const Attention& a, std::int64_t begin, std::int64_t count,
                        const RandomStream& stream, const Cut& cut);
KeepRule kept_weights_rule(const Attention& a, std::int64_t begin, std::int64_t count,
                           const RandomStream& stream, const Cut& cut);

// Results of the op, parallel to its outputs in the graph's signature: result and logarithms of the
// softmax's sums, or the gradients of query, key and value. `operands`: parallel to
// graph.inputs(op). On a GPU, by its fused kernels (fused_attention.h), or where weights are
// dropped, by kernels of ours (dropped_attention.h); where these have no form for the types at
// hand, and on CPUs, written out, so many samples at a time as
// cost/weights_at_once.h says. Which weights are dropped follows from `stream` and their place in
// the whole batch, of which the operands hold `cut`, along dimension 0; cut.held == cut.count: they
// are the whole.
std::vector<at::Tensor> run_attention(const graph::ModelGraph& graph, OpId op,
                                      std::span<const at::Tensor> operands,
                                      const RandomStream& stream, const Cut& cut);

}  // namespace heterog::runtime

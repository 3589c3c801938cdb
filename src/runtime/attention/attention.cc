// Attention by the kernels of a device, and written out for some samples at a time: weights
// P = softmax(scale · Q Kᵀ + mask), result (P ∘ D) V with D the dropout of weights. Its gradient is
// that of FlashAttention (Dao et al. 2022, appendix B), with P from the sums that forward kept.
#include "runtime/attention/attention.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "cost/weights_at_once.h"
#include "runtime/attention/dropped_attention.h"
#include "runtime/attention/fused_attention.h"
#include "runtime/gpu/gpu_kernels.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {
namespace {

using graph::Value;
using operators::Family;

// A mask of fewer dimensions, or of one sample, is one for all.
at::Tensor mask_of(const at::Tensor& mask, const Block& block) {
  return mask.dim() < 4 || mask.size(0) == 1 ? mask : block.of(mask);
}

// Calls with(block) for all samples, so many at a time as scratch memory holds.
template <class With>
void for_each_block(const Attention& a, const cost::WeightsAtOnce& held, const With& with) {
  const std::int64_t samples = a.query.size(0);
  const std::int64_t weights = a.query.size(1) * a.query.size(2) * a.key.size(2);
  const std::int64_t most = held.samples(weights);
  for (std::int64_t i = 0; i < samples; i += most) with(Block{i, std::min(most, samples - i)});
}

// Sums in single precision at least.
at::Tensor wide(const at::Tensor& x) { return is_half(x) ? x.to(at::kFloat) : x; }

// [n, H, L, S]: what the softmax is taken of.
at::Tensor scores(const Attention& a, const Block& block) {
  at::Tensor x = at::matmul(wide(block.of(a.query)), wide(block.of(a.key)).transpose(-2, -1));
  x.mul_(a.scale);
  const double never = -std::numeric_limits<double>::infinity();
  if (a.mask.defined()) {
    const at::Tensor mask = mask_of(a.mask, block);
    if (mask.scalar_type() == at::kBool) {
      x.masked_fill_(mask.logical_not(), never);
    } else {
      x.add_(mask);
    }
  }
  if (a.causal) {
    const auto ones = at::ones({x.size(-2), x.size(-1)}, x.options().dtype(at::kBool));
    x.masked_fill_(ones.triu(1), never);
  }
  return x;
}

// exp(scores − log of their sum); zeros for a query that may look at nothing, as the kernels have
// it.
at::Tensor weights(const at::Tensor& scores, const at::Tensor& log_sums) {
  const at::Tensor sums = log_sums.unsqueeze(-1);
  return scores.sub(sums.masked_fill(sums.isinf(), 0)).exp_();
}

// [n, H, L, S]: 1 / (1 − rate) where a weight stays, else 0. Undefined: all stay as they are.
at::Tensor kept(const Attention& a, const at::Tensor& weights, const Block& block,
                const RandomStream& stream, const Cut& cut) {
  if (a.rate == 0) return {};
  if (a.rate >= 1) return at::zeros_like(weights);
  const at::Tensor mask = kept_weights(a, block.begin, block.count, stream, cut);
  return mask.to(weights.scalar_type()).mul_(1 / (1 - a.rate));
}

std::vector<at::Tensor> forward_in_blocks(const Attention& a, const RandomStream& stream,
                                          const Cut& cut) {
  const auto sizes = a.query.sizes();
  const at::Tensor result = at::empty_like(a.query);
  const at::Tensor log_sums =
      at::empty({sizes[0], sizes[1], sizes[2]},
                a.query.options().dtype(is_half(a.query) ? at::kFloat : a.query.scalar_type()));
  for_each_block(a, cost::kForwardWrittenOut, [&](const Block& block) {
    at::Tensor p = scores(a, block);
    const at::Tensor sums = at::logsumexp(p, -1);
    block.of(log_sums).copy_(sums);
    p = weights(p, sums);
    const at::Tensor keep = kept(a, p, block, stream, cut);
    if (keep.defined()) p.mul_(keep);
    block.of(result).copy_(at::matmul(p, wide(block.of(a.value))));
  });
  return {result, log_sums};
}

std::vector<at::Tensor> backward_in_blocks(const Attention& a, const RandomStream& stream,
                                           const Cut& cut) {
  const at::Tensor to_query = empty_gradient(a.query);
  const at::Tensor to_key = empty_gradient(a.key);
  const at::Tensor to_value = empty_gradient(a.value);
  for_each_block(a, cost::kBackwardWrittenOut, [&](const Block& block) {
    const at::Tensor p = weights(scores(a, block), block.of(a.log_sums));
    const at::Tensor keep = kept(a, p, block, stream, cut);
    const at::Tensor gradient = wide(block.of(a.gradient));
    const at::Tensor used = keep.defined() ? p * keep : p;
    block.of(to_value).copy_(at::matmul(used.transpose(-2, -1), gradient));
    at::Tensor to_weights = at::matmul(gradient, wide(block.of(a.value)).transpose(-2, -1));
    if (keep.defined()) to_weights.mul_(keep);
    const at::Tensor shared = (gradient * wide(block.of(a.result))).sum(-1, /*keepdim=*/true);
    const at::Tensor& to_scores = to_weights.sub_(shared).mul_(p).mul_(a.scale);
    block.of(to_query).copy_(at::matmul(to_scores, wide(block.of(a.key))));
    block.of(to_key).copy_(at::matmul(to_scores.transpose(-2, -1), wide(block.of(a.query))));
  });
  return {to_query, to_key, to_value};
}

std::vector<std::int64_t> sizes_of_weights(const Attention& a, std::int64_t samples) {
  return {samples, a.query.size(1), a.query.size(2), a.key.size(2)};
}

// Where samples [begin, begin + count) of the operands lie in the whole. Dimension 0 may have
// several rows for each sample of the batch: windows of an image.
Cut part_of(const Attention& a, std::int64_t begin, std::int64_t count, const Cut& cut) {
  const std::int64_t rows = cut.count > 0 ? a.query.size(0) / cut.count : a.query.size(0);
  return {0, 1, rows * std::max<std::int64_t>(cut.held, 1), rows * cut.begin + begin, count};
}

}  // namespace

Attention attention_of(const graph::ModelGraph& graph, OpId op,
                       std::span<const at::Tensor> operands) {
  const bool backward = graph.facts(op).family == Family::kAttentionBackward;
  Attention a;
  std::size_t next = 0;
  const auto rows = [&] {
    const at::Tensor& x = operands[next++];
    return has_dense_rows(x) ? x : x.contiguous();  // kernels want it so
  };
  if (backward) a.gradient = rows();
  a.query = rows();
  a.key = rows();
  a.value = rows();
  if (backward) {
    a.result = rows();
    a.log_sums = operands[next++];
  }
  a.rate = dropped_share(graph, op);
  const std::size_t causal = backward ? 7 : 4;
  const auto args = graph.args(op);
  a.causal = causal < args.size() && args[causal].integer.c != 0;
  a.scale = 1 / std::sqrt(static_cast<double>(a.query.size(3)));
  for (const auto& [name, value] : graph.kwargs(op)) {
    if (name == "attn_mask" && value.kind == Value::Kind::kTensor) a.mask = operands[next];
    if (name == "scale" && value.kind == Value::Kind::kFloat) a.scale = value.number;
    if (name == "scale" && value.kind == Value::Kind::kInt) {
      a.scale = static_cast<double>(value.integer.c);
    }
    if (name == "is_causal") a.causal = value.integer.c != 0;
  }
  return a;
}

at::Tensor empty_gradient(const at::Tensor& operand) {
  const auto sizes = operand.sizes();
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, operand.options()).transpose(1, 2);
}

bool is_attention(const graph::ModelGraph& graph, OpId op) {
  const Family family = graph.facts(op).family;
  return family == Family::kAttention || family == Family::kAttentionBackward;
}

at::Tensor kept_weights(const Attention& a, std::int64_t begin, std::int64_t count,
                        const RandomStream& stream, const Cut& cut) {
  return keep_mask(stream, a.rate, sizes_of_weights(a, count), part_of(a, begin, count, cut),
                   a.query.device());
}

KeepRule kept_weights_rule(const Attention& a, std::int64_t begin, std::int64_t count,
                           const RandomStream& stream, const Cut& cut) {
  return keep_rule(stream, a.rate, sizes_of_weights(a, count), part_of(a, begin, count, cut));
}

std::vector<at::Tensor> run_attention(const graph::ModelGraph& graph, OpId op,
                                      std::span<const at::Tensor> operands,
                                      const RandomStream& stream, const Cut& cut) {
  EXPECT(is_attention(graph, op));
  const Attention a = attention_of(graph, op, operands);
  const bool backward = a.gradient.defined();
  const bool has_kernel =
      has_gpu_kernels(a.query.device()) && a.rate < 1 && a.query.scalar_type() != at::kDouble;
  if (has_kernel && a.rate == 0) return fused_attention(a, kernels_of_gpus());
  if (has_kernel) {
    if (auto made = attention_that_drops(a, stream, cut)) return *std::move(made);
  }
  return backward ? backward_in_blocks(a, stream, cut) : forward_in_blocks(a, stream, cut);
}

}  // namespace heterog::runtime

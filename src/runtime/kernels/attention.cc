// Attention by PyTorch's kernels of GPUs, and written out for one sample at a time: weights
// P = softmax(scale · Q Kᵀ + mask), result (P ∘ D) V with D the dropout of weights. Its gradient is
// that of FlashAttention (Dao et al. 2022, appendix B), with P from the sums that forward kept.
#include "runtime/kernels/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {
namespace {

using graph::Value;
using operators::Family;

at::Tensor sample(const at::Tensor& value, std::int64_t index) { return value.select(0, index); }

// One sample's part of a mask, [H or 1, L or 1, S or 1]; [L, S] is one for all.
at::Tensor mask_of(const at::Tensor& mask, std::int64_t index) {
  if (mask.dim() < 4) return mask;
  return mask.select(0, mask.size(0) == 1 ? 0 : index);
}

// Sums in single precision at least.
at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x;
}

// [H, L, S]: what the softmax is taken of.
at::Tensor scores(const Attention& a, std::int64_t index) {
  at::Tensor x =
      at::matmul(wide(sample(a.query, index)), wide(sample(a.key, index)).transpose(-2, -1));
  x.mul_(a.scale);
  const double never = -std::numeric_limits<double>::infinity();
  if (a.mask.defined()) {
    const at::Tensor mask = mask_of(a.mask, index);
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

// [H, L, S]: 1 / (1 − rate) where a weight stays, else 0. Undefined: all stay as they are.
at::Tensor kept(const Attention& a, const at::Tensor& weights, std::int64_t index,
                const RandomStream& stream, const Cut& cut) {
  if (a.rate == 0) return {};
  if (a.rate >= 1) return at::zeros_like(weights);
  std::vector<std::int64_t> sizes = weights.sizes().vec();
  sizes.insert(sizes.begin(), 1);
  // Dimension 0 may have several rows for each sample of the batch: windows of an image.
  const std::int64_t rows = cut.count > 0 ? a.query.size(0) / cut.count : a.query.size(0);
  const Cut one{0, 1, rows * std::max<std::int64_t>(cut.held, 1), rows * cut.begin + index, 1};
  const at::Tensor mask = keep_mask(stream, a.rate, sizes, one, weights.device()).squeeze(0);
  return mask.to(weights.scalar_type()).mul_(1 / (1 - a.rate));
}

// Gradients as the kernel of CPUs lays them out: [N, L, H, E] in memory. Its result lies as the
// query does.
at::Tensor empty_gradient(const at::Tensor& x) {
  const auto sizes = x.sizes();
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, x.options()).transpose(1, 2);
}

std::vector<at::Tensor> forward_by_sample(const Attention& a, const RandomStream& stream,
                                          const Cut& cut) {
  const auto sizes = a.query.sizes();
  const at::Tensor result = at::empty_like(a.query);
  const at::Tensor log_sums =
      at::empty({sizes[0], sizes[1], sizes[2]},
                a.query.options().dtype(wide(a.query.new_empty({0})).scalar_type()));
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    at::Tensor p = scores(a, i);
    const at::Tensor sums = at::logsumexp(p, -1);
    log_sums.select(0, i).copy_(sums);
    p = weights(p, sums);
    const at::Tensor keep = kept(a, p, i, stream, cut);
    if (keep.defined()) p.mul_(keep);
    result.select(0, i).copy_(at::matmul(p, wide(sample(a.value, i))));
  }
  return {result, log_sums};
}

std::vector<at::Tensor> backward_by_sample(const Attention& a, const RandomStream& stream,
                                           const Cut& cut) {
  const at::Tensor to_query = empty_gradient(a.query);
  const at::Tensor to_key = empty_gradient(a.key);
  const at::Tensor to_value = empty_gradient(a.value);
  for (std::int64_t i = 0; i < a.query.size(0); ++i) {
    const at::Tensor p = weights(scores(a, i), sample(a.log_sums, i));
    const at::Tensor keep = kept(a, p, i, stream, cut);
    const at::Tensor gradient = wide(sample(a.gradient, i));
    const at::Tensor used = keep.defined() ? p * keep : p;
    to_value.select(0, i).copy_(at::matmul(used.transpose(-2, -1), gradient));
    at::Tensor to_weights = at::matmul(gradient, wide(sample(a.value, i)).transpose(-2, -1));
    if (keep.defined()) to_weights.mul_(keep);
    const at::Tensor shared = (gradient * wide(sample(a.result, i))).sum(-1, /*keepdim=*/true);
    const at::Tensor& to_scores = to_weights.sub_(shared).mul_(p).mul_(a.scale);
    to_query.select(0, i).copy_(at::matmul(to_scores, wide(sample(a.key, i))));
    to_key.select(0, i).copy_(at::matmul(to_scores.transpose(-2, -1), wide(sample(a.query, i))));
  }
  return {to_query, to_key, to_value};
}

// ------------------------------------------------------------------------------- GPUs

// The memory-efficient kernel's rows of sums, a multiple of 32.
constexpr std::int64_t kRowsOfSums = 32;

bool is_half(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
}

// Which of two kernels: flash attention has no masks and no single precision.
bool is_flash(const Attention& a) { return is_half(a.query) && !a.mask.defined(); }

// The memory-efficient kernel wants a mask of the scores' own sizes and type.
std::optional<at::Tensor> bias_of(const Attention& a) {
  if (!a.mask.defined()) return std::nullopt;
  at::Tensor mask = a.mask;
  if (mask.scalar_type() == at::kBool) {
    mask = at::zeros(mask.sizes(), a.query.options())
               .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return mask.expand({a.query.size(0), a.query.size(1), a.query.size(2), a.key.size(2)});
}

// What a kernel made, in memory as the graph's views expect it.
at::Tensor laid_out(const at::Tensor& made, const at::Tensor& form) {
  return made.strides() == form.strides()
             ? made
             : at::empty_strided(form.sizes(), form.strides(), made.options()).copy_(made);
}

std::vector<at::Tensor> gradients(const Attention& a, const at::Tensor& query,
                                  const at::Tensor& key, const at::Tensor& value) {
  const auto form = [](const at::Tensor& x) {
    return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options().device(at::kMeta))
        .transpose(1, 2);
  };
  return {laid_out(query, form(a.query)), laid_out(key, form(a.key)),
          laid_out(value, form(a.value))};
}

at::Tensor no_seed(const Attention& a) { return at::zeros({}, a.query.options().dtype(at::kLong)); }

std::vector<at::Tensor> forward_by_kernel(const Attention& a) {
  const at::Tensor form = at::empty_like(a.query, a.query.options().device(at::kMeta));
  if (is_flash(a)) {
    const auto made = at::_scaled_dot_product_flash_attention(a.query, a.key, a.value, 0.0,
                                                              a.causal, false, a.scale);
    return {laid_out(std::get<0>(made), form), std::get<1>(made)};
  }
  const auto made = at::_scaled_dot_product_efficient_attention(
      a.query, a.key, a.value, bias_of(a), /*compute_log_sumexp=*/true, 0.0, a.causal, a.scale);
  return {laid_out(std::get<0>(made), form), std::get<1>(made).narrow(-1, 0, a.query.size(2))};
}

std::vector<at::Tensor> backward_by_kernel(const Attention& a) {
  if (is_flash(a)) {
    const auto made = at::_scaled_dot_product_flash_attention_backward(
        a.gradient, a.query, a.key, a.value, a.result, a.log_sums, {}, {}, a.query.size(2),
        a.key.size(2), 0.0, a.causal, no_seed(a), no_seed(a), a.scale);
    return gradients(a, std::get<0>(made), std::get<1>(made), std::get<2>(made));
  }
  const std::int64_t queries = a.query.size(2);
  const std::int64_t missing = (kRowsOfSums - queries % kRowsOfSums) % kRowsOfSums;
  const at::Tensor sums =
      at::constant_pad_nd(a.log_sums, {0, missing}, std::numeric_limits<double>::infinity());
  const auto made = at::_scaled_dot_product_efficient_attention_backward(
      a.gradient, a.query, a.key, a.value, bias_of(a).value_or(at::Tensor()), a.result, sums,
      no_seed(a), no_seed(a), 0.0, {true, true, true, false}, a.causal, a.scale);
  return gradients(a, std::get<0>(made), std::get<1>(made), std::get<2>(made));
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

bool is_attention(const graph::ModelGraph& graph, OpId op) {
  const Family family = graph.facts(op).family;
  return family == Family::kAttention || family == Family::kAttentionBackward;
}

std::vector<at::Tensor> run_attention(const graph::ModelGraph& graph, OpId op,
                                      std::span<const at::Tensor> operands,
                                      const RandomStream& stream, const Cut& cut) {
  EXPECT(is_attention(graph, op));
  const Attention a = attention_of(graph, op, operands);
  const bool backward = a.gradient.defined();
  const bool has_kernel = a.query.is_cuda() && a.rate == 0 && a.query.scalar_type() != at::kDouble;
  if (has_kernel) return backward ? backward_by_kernel(a) : forward_by_kernel(a);
  return backward ? backward_by_sample(a, stream, cut) : forward_by_sample(a, stream, cut);
}

}  // namespace heterog::runtime

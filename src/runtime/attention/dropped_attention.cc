// Two products forward, five backward, and a kernel between them.
#include "runtime/attention/dropped_attention.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cost/weights_at_once.h"
#include "runtime/gpu/dropout_on_gpu.h"

namespace heterog::runtime {
namespace {

// [count · H, L, E]
at::Tensor planes(const at::Tensor& x, const Block& block) {
  return block.of(x).reshape({block.count * x.size(1), x.size(2), x.size(3)});
}

// In single precision, whatever the operands are in.
at::Tensor wide_product(const at::Tensor& x, const at::Tensor& y) {
  if (!is_half(x)) return at::bmm(x, y);
  return x.is_cpu() ? at::bmm(x.to(at::kFloat), y.to(at::kFloat)) : at::bmm(x, y, at::kFloat);
}

// The mask as what is added to the scores, [N, H, L, S], side by side along S; undefined: nothing.
at::Tensor added(const Attention& a) {
  if (!a.mask.defined()) return {};
  const at::Tensor bias = a.mask.scalar_type() == at::kBool ? a.mask.log() : a.mask;  // 0 or −∞
  const at::Tensor all =
      bias.to(a.query.scalar_type())
          .expand({a.query.size(0), a.query.size(1), a.query.size(2), a.key.size(2)});
  return all.stride(-1) == 1 || all.size(-1) == 1 ? all : all.contiguous();
}

class Dropped {
 public:
  Dropped(const Attention& a, const RandomStream& stream, const Cut& cut)
      : a_(a), stream_(stream), cut_(cut), bias_(added(a)) {}

  // Calls with(block) until that says false; whether it never did.
  template <class With>
  bool for_each_block(const With& with) const {
    const bool backward = a_.gradient.defined();
    const auto operand = static_cast<Bytes>(a_.query.element_size());
    const std::int64_t weights = a_.query.size(1) * a_.query.size(2) * a_.key.size(2);
    const std::int64_t most = cost::weights_at_once_on_gpu(operand, backward).samples(weights);
    const std::int64_t samples = a_.query.size(0);
    for (std::int64_t i = 0; i < samples; i += most) {
      if (!with(Block{i, std::min(most, samples - i)})) return false;
    }
    return true;
  }

  // `queries`, `keys`: the block's planes.
  DroppedWeights weights(const Block& block, const at::Tensor& queries,
                         const at::Tensor& keys) const {
    return {wide_product(queries, keys.transpose(1, 2)).view(sizes(block)),
            bias_.defined() ? block.of(bias_) : bias_,
            {static_cast<float>(a_.scale), static_cast<float>(1 / (1 - a_.rate)), a_.causal},
            kept_weights_rule(a_, block.begin, block.count, stream_, cut_)};
  }

  at::Tensor empty(const Block& block) const { return at::empty(sizes(block), a_.query.options()); }

 private:
  std::vector<std::int64_t> sizes(const Block& block) const {
    return {block.count, a_.query.size(1), a_.query.size(2), a_.key.size(2)};
  }

  const Attention& a_;
  const RandomStream& stream_;
  const Cut& cut_;
  const at::Tensor bias_;
};

// [count, H, …] of what was made by planes.
at::Tensor of_heads(const at::Tensor& made, const Block& block) {
  return made.view({block.count, made.size(0) / block.count, made.size(1), made.size(2)});
}

std::optional<std::vector<at::Tensor>> forward_that_drops(const Attention& a,
                                                          const Dropped& dropped) {
  const auto sizes = a.query.sizes();
  const at::Tensor result = at::empty_like(a.query);
  const at::Tensor log_sums =
      at::empty({sizes[0], sizes[1], sizes[2]}, a.query.options().dtype(at::kFloat));
  const bool done = dropped.for_each_block([&](const Block& block) {
    const at::Tensor used = dropped.empty(block);
    const DroppedWeights weights =
        dropped.weights(block, planes(a.query, block), planes(a.key, block));
    if (!drop_weights_on_gpu(used, block.of(log_sums), weights)) return false;
    block.of(result).copy_(of_heads(at::bmm(used.flatten(0, 1), planes(a.value, block)), block));
    return true;
  });
  if (!done) return std::nullopt;
  return {{result, log_sums}};
}

std::optional<std::vector<at::Tensor>> backward_that_drops(const Attention& a,
                                                           const Dropped& dropped) {
  const at::Tensor to_query = empty_gradient(a.query);
  const at::Tensor to_key = empty_gradient(a.key);
  const at::Tensor to_value = empty_gradient(a.value);
  const bool done = dropped.for_each_block([&](const Block& block) {
    const at::Tensor queries = planes(a.query, block), keys = planes(a.key, block);
    const at::Tensor gradient = planes(a.gradient, block);
    const DroppedWeights weights = dropped.weights(block, queries, keys);
    const at::Tensor to_used = wide_product(gradient, planes(a.value, block).transpose(1, 2));
    const at::Tensor used = dropped.empty(block), to_products = dropped.empty(block);
    if (!drop_weights_backward_on_gpu(used, to_products, to_used, block.of(a.log_sums), weights)) {
      return false;
    }
    const at::Tensor p = used.flatten(0, 1), s = to_products.flatten(0, 1);
    block.of(to_value).copy_(of_heads(at::bmm(p.transpose(1, 2), gradient), block));
    block.of(to_query).copy_(of_heads(at::bmm(s, keys), block));
    block.of(to_key).copy_(of_heads(at::bmm(s.transpose(1, 2), queries), block));
    return true;
  });
  if (!done) return std::nullopt;
  return {{to_query, to_key, to_value}};
}

}  // namespace

std::optional<std::vector<at::Tensor>> attention_that_drops(const Attention& a,
                                                            const RandomStream& stream,
                                                            const Cut& cut) {
  EXPECT(a.rate > 0 && a.rate < 1);
  const Dropped dropped(a, stream, cut);
  return a.gradient.defined() ? backward_that_drops(a, dropped) : forward_that_drops(a, dropped);
}

}  // namespace heterog::runtime

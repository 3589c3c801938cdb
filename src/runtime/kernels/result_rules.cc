// The table of operators that exported steps have, or could have, and of which LibTorch has no
// kernel for tensors without memory: only Python's part of PyTorch says what they make, and the
// programs here have no Python. All others LibTorch infers itself; where it cannot and there is no
// row, results are held against the file when the operator has run (OperatorCall::call).
#include "runtime/kernels/result_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace heterog::runtime {
namespace {

using Results = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;

at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta));
}

at::Tensor empty_like(const Operands& o, std::string_view name) {
  return empty(o.tensor(name).sizes(), o.tensor(name).scalar_type());
}

// ------------------------------------------------------------------------------- elementwise

Results like_self(const Operands& o) { return {empty_like(o, "self")}; }
Results like_gradient(const Operands& o) { return {empty_like(o, "grad_output")}; }
Results like_both(const Operands& o) { return {empty_like(o, "self"), empty_like(o, "self")}; }

Results bools(const Operands& o) { return {empty(o.tensor("self").sizes(), at::kBool)}; }

Sizes broadcast(const Operands& o, std::string_view one, std::string_view other) {
  return at::infer_size(o.tensor(one).sizes(), o.tensor(other).sizes());
}

Results bools_of_both(const Operands& o) {
  return {empty(broadcast(o, "self", "other"), at::kBool)};
}

Results promoted(const Operands& o) {
  return {
      empty(broadcast(o, "self", "other"), at::result_type(o.tensor("self"), o.tensor("other")))};
}

Results where(const Operands& o) {
  const at::ScalarType condition = o.tensor("condition").scalar_type();
  if (condition != at::kBool && condition != at::kByte) o.refuse("condition", "is not of bools");
  const Sizes sizes = at::infer_size(o.tensor("condition").sizes(), broadcast(o, "self", "other"));
  return {empty(sizes, at::result_type(o.tensor("self"), o.tensor("other")))};
}

Results dropout(const Operands& o) {
  return {empty_like(o, "input"), empty(o.tensor("input").sizes(), at::kBool)};
}

Results safe_softmax(const Operands& o) {
  const at::Tensor& self = o.tensor("self");
  return {
      at::_softmax(o.given("dtype") ? self.to(o.dtype("dtype")) : self, o.integer("dim"), false)};
}

Results prelu(const Operands& o) {
  return {empty(broadcast(o, "self", "weight"), o.tensor("self").scalar_type())};
}

Results prelu_backward(const Operands& o) {
  const at::Tensor result = prelu(o)[0];
  return {result, empty(result.sizes(), o.tensor("weight").scalar_type())};
}

// ------------------------------------------------------------------------------- losses

Results loss(const Operands& o) {
  const bool each = o.integer("reduction") == at::Reduction::None;
  const at::ScalarType type = o.tensor("self").scalar_type();
  return {each ? empty(broadcast(o, "self", "target"), type) : empty({}, type)};
}

Results loss_backward(const Operands& o) {
  return {empty(broadcast(o, "self", "target"), o.tensor("self").scalar_type())};
}

Results nll_loss2d(const Operands& o) {
  o.have_dims("self", 4, 4);
  o.have_sizes("target", {o.size("self", 0), o.size("self", 2), o.size("self", 3)});
  const at::ScalarType type = o.tensor("self").scalar_type();
  const bool each = o.integer("reduction") == at::Reduction::None;
  return {each ? empty(o.tensor("target").sizes(), type) : empty({}, type), empty({}, type)};
}

// ------------------------------------------------------------------------------- reductions

// Of all elements, with the dtype of the operand.
Results scalar(const Operands& o) { return {empty({}, o.tensor("self").scalar_type())}; }

Results product(const Operands& o) {
  return {o.given("dtype") ? at::sum(o.tensor("self"), o.dtype("dtype"))
                           : at::sum(o.tensor("self"))};
}

at::Tensor mean(const Operands& o) {
  if (!o.given("dim")) {
    const Sizes ones(o.flag("keepdim") ? static_cast<std::size_t>(o.dims("self")) : 0, 1);
    return empty(ones, o.tensor("self").scalar_type());
  }
  return at::mean(o.tensor("self"), o.integers("dim"), o.flag("keepdim"));
}
Results variance(const Operands& o) { return {mean(o)}; }
Results variance_and_mean(const Operands& o) { return {mean(o), mean(o)}; }

Results dot(const Operands& o) {
  o.have_dims("self", 1, 1);
  o.be_like("self", o.has("tensor") ? "tensor" : "other");
  return scalar(o);
}

// ------------------------------------------------------------------------------- tables, places

Results index_select(const Operands& o) {
  o.have_dims("index", 0, 1);
  Sizes sizes = o.tensor("self").sizes().vec();
  if (!sizes.empty()) {
    o.size("self", o.integer("dim"));
    const auto dims = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = o.integer("dim") + (o.integer("dim") < 0 ? dims : 0);
    sizes[static_cast<std::size_t>(dim)] = o.tensor("index").numel();
  }
  return {empty(sizes, o.tensor("self").scalar_type())};
}

Results embedding(const Operands& o) {
  o.have_dims("weight", 2, 2);
  Sizes sizes = o.tensor("indices").sizes().vec();
  sizes.push_back(o.size("weight", 1));
  return {empty(sizes, o.tensor("weight").scalar_type())};
}

Results embedding_backward(const Operands& o) {
  o.lie_in("num_weights", o.integer("num_weights"), 0, std::int64_t{1} << 40);
  return {empty({o.integer("num_weights"), o.size("grad_output", -1)},
                o.tensor("grad_output").scalar_type())};
}

Results multinomial(const Operands& o) {
  o.have_dims("self", 1, 2);
  Sizes sizes = o.tensor("self").sizes().vec();
  sizes.back() = o.integer("num_samples");
  return {empty(sizes, at::kLong)};
}

Results permutation(const Operands& o) {
  o.lie_in("n", o.integer("n"), 0, std::int64_t{1} << 40);
  return {empty({o.integer("n")}, o.given("dtype") ? o.dtype("dtype") : at::kLong)};
}

// ------------------------------------------------------------------------------- norms

// Statistics are in single precision beside operands in half precision whose weights are not.
at::ScalarType statistics_type(const Operands& o) {
  const at::ScalarType type = o.tensor("input").scalar_type();
  for (std::string_view name : {"weight", "bias", "running_mean"}) {
    if (at::isReducedFloatingType(type) && o.given(name) &&
        o.tensor(name).scalar_type() == at::kFloat) {
      return at::kFloat;
    }
  }
  return type;
}

Results batch_norm(const Operands& o) {
  o.have_dims("input", 2, 5);
  const bool trains = !o.has("training") || o.flag("training");
  const at::Tensor saved = empty({trains ? o.size("input", 1) : 0}, statistics_type(o));
  return {empty_like(o, "input"), saved, saved};
}

Results batch_norm_with_running(const Operands& o) {
  Results results = batch_norm(o);
  for (std::string_view name : {"running_mean", "running_var"}) {
    results.push_back(o.given(name) ? empty_like(o, name) : at::Tensor());
  }
  return results;
}

// Those of the input and of its scale and shift, where they are asked for.
Results norm_backward(const Operands& o, at::IntArrayRef of_scale) {
  const std::vector<bool> mask = o.flags("output_mask", 3);
  const at::ScalarType type = o.tensor(o.given("weight") ? "weight" : "input").scalar_type();
  const at::Tensor scale = empty(of_scale, type);
  return {mask[0] ? empty_like(o, "input") : at::Tensor(), mask[1] ? scale : at::Tensor(),
          mask[2] ? scale : at::Tensor()};
}

Results batch_norm_backward(const Operands& o) { return norm_backward(o, {o.size("input", 1)}); }
Results group_norm_backward(const Operands& o) { return norm_backward(o, {o.integer("C")}); }
Results layer_norm_backward(const Operands& o) {
  return norm_backward(o, o.integers("normalized_shape"));
}

Results layer_norm(const Operands& o) {
  const Sizes tail = o.integers("normalized_shape");
  Sizes sizes = o.tensor("input").sizes().vec();
  if (tail.empty() || tail.size() > sizes.size() ||
      !std::equal(tail.rbegin(), tail.rend(), sizes.rbegin())) {
    o.refuse("input", fmt::format("does not end in {}", text_of_sizes(tail)));
  }
  o.have_sizes("weight", tail);
  o.have_sizes("bias", tail);
  std::fill_n(sizes.rbegin(), tail.size(), 1);
  const at::Tensor statistics = empty(sizes, statistics_type(o));
  return {empty_like(o, "input"), statistics, statistics};
}

Results group_norm(const Operands& o) {
  const at::Tensor statistics = empty({o.integer("N"), o.integer("group")}, statistics_type(o));
  return {empty_like(o, "input"), statistics, statistics};
}

// ------------------------------------------------------------------------------- convolution

// An argument with a number for each plane dimension, or one for all.
std::int64_t number_at(const Operands& o, std::string_view name, std::size_t i) {
  const Sizes numbers = o.integers(name);
  if (numbers.empty() || (numbers.size() > 1 && i >= numbers.size())) {
    o.refuse(name, fmt::format("has {} numbers", numbers.size()));
  }
  return numbers.size() == 1 ? numbers[0] : numbers[i];
}

// input [N, C_in, …], weight [C_out, C_in / groups, …], or [C_in, C_out / groups, …] if transposed.
Sizes convolved(const Operands& o) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  o.have_dims("weight", 3, 5);
  o.have_dims("input", o.dims("weight"), o.dims("weight"));
  const bool transposed = o.flag("transposed");
  const std::int64_t groups = o.integer("groups");
  o.lie_in("groups", groups, 1, std::max<std::int64_t>(1, o.size("weight", 0)));
  const std::int64_t in = o.size("weight", transposed ? 0 : 1) * (transposed ? 1 : groups);
  const std::int64_t out = o.size("weight", transposed ? 1 : 0) * (transposed ? groups : 1);
  o.lie_in("input", o.size("input", 1), in, in);
  Sizes sizes = {o.size("input", 0), out};
  for (std::int64_t dim = 2; dim < o.dims("weight"); ++dim) {
    const auto i = static_cast<std::size_t>(dim - 2);
    const std::int64_t stride = number_at(o, "stride", i), padding = number_at(o, "padding", i);
    const std::int64_t dilation = number_at(o, "dilation", i);
    o.lie_in("stride", stride, 1, kMost);
    o.lie_in("dilation", dilation, 1, std::int64_t{1} << 20);
    o.lie_in("padding", padding, 0, kMost);
    o.lie_in("weight", o.size("weight", dim), 1, kMost);
    const std::int64_t window = dilation * (o.size("weight", dim) - 1) + 1;
    const std::int64_t size = o.size("input", dim);
    if (transposed) {
      const std::int64_t more = number_at(o, "output_padding", i);
      o.lie_in("output_padding", more, 0, kMost);
      o.lie_in("stride", stride, 1, kMost / std::max<std::int64_t>(1, size));
      sizes.push_back((size - 1) * stride - 2 * padding + window + more);
    } else {
      o.lie_in("weight", window, 1, size + 2 * padding);
      sizes.push_back((size + 2 * padding - window) / stride + 1);
    }
    o.lie_in("input", sizes.back(), 1, kMost);
  }
  return sizes;
}

Results convolution(const Operands& o) {
  const Sizes sizes = convolved(o);
  o.have_sizes("bias", {sizes[1]});
  o.have_dtype("weight", o.tensor("input").scalar_type());
  o.have_dtype("bias", o.tensor("input").scalar_type());
  return {empty(sizes, o.tensor("input").scalar_type())};
}

Results convolution_backward(const Operands& o) {
  const Sizes sizes = convolved(o);
  o.have_sizes("grad_output", sizes);
  o.have_dtype("weight", o.tensor("input").scalar_type());
  o.have_dtype("grad_output", o.tensor("input").scalar_type());
  const std::vector<bool> mask = o.flags("output_mask", 3);
  return {mask[0] ? empty_like(o, "input") : at::Tensor(),
          mask[1] ? empty_like(o, "weight") : at::Tensor(),
          mask[2] ? empty({sizes[1]}, o.tensor("weight").scalar_type()) : at::Tensor()};
}

// ------------------------------------------------------------------------------- planes

template <int kDims>
Results adaptive_pool(const Operands& o) {
  o.have_dims("self", kDims + 1, kDims + 2);
  Sizes sizes = o.tensor("self").sizes().vec();
  for (std::size_t i = 0; i < kDims; ++i) {
    sizes[sizes.size() - kDims + i] = number_at(o, "output_size", i);
  }
  return {empty(sizes, o.tensor("self").scalar_type())};
}

// input [N, C, …], grid [N, …, dims].
Results grid_sampler(const Operands& o) {
  Sizes sizes = o.tensor("grid").sizes().vec();
  if (sizes.size() < 4) o.have_dims("grid", 4, 5);
  o.have_dims("input", o.dims("grid"), o.dims("grid"));
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, o.size("input", 1));
  return {empty(sizes, o.tensor("input").scalar_type())};
}

Results grid_sampler_backward(const Operands& o) {
  const bool of_input = o.flags("output_mask", 2)[0];
  return {of_input ? empty_like(o, "input") : at::Tensor(), empty_like(o, "grid")};
}

Results padded(const Operands& o) {
  return {at::constant_pad_nd(o.tensor("self"), o.integers("padding"))};
}

// ------------------------------------------------------------------------------- attention

Results attention(const Operands& o) {
  for (std::string_view name : {"query", "key", "value"}) o.have_dims(name, 4, 4);
  const at::ScalarType type = o.tensor("query").scalar_type();
  const Sizes sums = {o.size("query", 0), o.size("query", 1), o.size("query", 2)};
  Sizes sizes = sums;
  sizes.push_back(o.size("value", 3));
  return {empty(sizes, type), empty(sums, at::toOpMathType(type))};
}

Results attention_backward(const Operands& o) {
  return {empty_like(o, "query"), empty_like(o, "key"), empty_like(o, "value")};
}

// ------------------------------------------------------------------------------- distances

Results distances(const Operands& o) {
  o.have_dims("x1", 2, 64);
  o.have_dims("x2", 2, 64);
  const auto one = o.tensor("x1").sizes(), two = o.tensor("x2").sizes();
  o.lie_in("x2", two.back(), one.back(), one.back());
  Sizes sizes = at::infer_size(one.slice(0, one.size() - 2), two.slice(0, two.size() - 2));
  sizes.push_back(one[one.size() - 2]);
  sizes.push_back(two[two.size() - 2]);
  return {empty(sizes, o.tensor("x1").scalar_type())};
}

Results distances_backward(const Operands& o) { return {empty_like(o, "x1")}; }

// ------------------------------------------------------------------------------- updates

// Of every list that is updated the next values: "exp_avgs" becomes "exp_avgs_out".
Results next_values(const Operands& o) {
  Results results;
  for (const c10::Argument& result : o.schema().returns()) {
    std::string list = result.name();
    if (list.ends_with("_out")) list.resize(list.size() - 4);
    for (const at::Tensor& item : o.tensors(list)) {
      results.push_back(empty(item.sizes(), item.scalar_type()));
    }
  }
  return results;
}

struct Row {
  std::string_view type;
  ResultRule rule;
};

constexpr Row kRows[] = {
    {"aten.relu.default", like_self},
    {"aten.abs.default", like_self},
    {"aten.hardtanh.default", like_self},
    {"aten.hardtanh_backward.default", like_self},
    {"aten.hardswish.default", like_self},
    {"aten.hardswish_backward.default", like_self},
    {"aten.glu_backward.default", like_self},
    {"aten.log_sigmoid_forward.default", like_both},
    {"aten.log_sigmoid_backward.default", like_self},
    {"aten._prelu_kernel.default", prelu},
    {"aten._prelu_kernel_backward.default", prelu_backward},
    {"aten.flip.default", like_self},
    {"aten.roll.default", like_self},
    {"aten._safe_softmax.default", safe_softmax},
    {"aten.native_dropout.default", dropout},
    {"aten.native_dropout_backward.default", like_gradient},
    {"aten.logical_not.default", bools},
    {"aten.isnan.default", bools},
    {"aten.isinf.default", bools},
    {"aten.logical_and.default", bools_of_both},
    {"aten.logical_or.default", bools_of_both},
    {"aten.logical_xor.default", bools_of_both},
    {"aten.floor_divide.default", promoted},
    {"aten.rsub.Tensor", promoted},
    {"aten.where.self", where},
    {"aten.huber_loss.default", loss},
    {"aten.huber_loss_backward.default", loss_backward},
    {"aten.mse_loss_backward.default", loss_backward},
    {"aten.smooth_l1_loss_backward.default", loss_backward},
    {"aten.binary_cross_entropy.default", loss},
    {"aten.binary_cross_entropy_backward.default", loss_backward},
    {"aten.nll_loss2d_forward.default", nll_loss2d},
    {"aten.nll_loss2d_backward.default", like_self},
    {"aten.max.default", scalar},
    {"aten.min.default", scalar},
    {"aten.median.default", scalar},
    {"aten.prod.default", product},
    {"aten.var.correction", variance},
    {"aten.std.correction", variance},
    {"aten.var_mean.correction", variance_and_mean},
    {"aten.std_mean.correction", variance_and_mean},
    {"aten.dot.default", dot},
    {"aten.index_select.default", index_select},
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.multinomial.default", multinomial},
    {"aten.randperm.default", permutation},
    {"aten.native_batch_norm.default", batch_norm},
    {"aten._native_batch_norm_legit.no_stats", batch_norm},
    {"aten._native_batch_norm_legit_functional.default", batch_norm_with_running},
    {"aten.native_batch_norm_backward.default", batch_norm_backward},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.native_group_norm.default", group_norm},
    {"aten.native_group_norm_backward.default", group_norm_backward},
    {"aten.convolution.default", convolution},
    {"aten.convolution_backward.default", convolution_backward},
    {"aten._adaptive_avg_pool2d.default", adaptive_pool<2>},
    {"aten._adaptive_avg_pool2d_backward.default", like_self},
    {"aten._adaptive_avg_pool3d.default", adaptive_pool<3>},
    {"aten._adaptive_avg_pool3d_backward.default", like_self},
    {"aten.grid_sampler_2d.default", grid_sampler},
    {"aten.grid_sampler_2d_backward.default", grid_sampler_backward},
    {"aten.reflection_pad2d.default", padded},
    {"aten.reflection_pad2d_backward.default", like_self},
    {"aten.replication_pad2d_backward.default", like_self},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention_backward},
    {"aten._cdist_forward.default", distances},
    {"aten._cdist_backward.default", distances_backward},
    {"aten._fused_adam.default", next_values},
    {"aten._fused_adam.tensor_lr", next_values},
    {"aten._fused_adamw.default", next_values},
    {"aten._fused_adamw.tensor_lr", next_values},
    {"aten._fused_sgd.default", next_values},
    {"aten._fused_sgd.tensor_lr", next_values},
};

}  // namespace

ResultRule result_rule(std::string_view type) {
  static const auto rules = [] {
    std::unordered_map<std::string_view, ResultRule> map;
    for (const Row& row : kRows) map.emplace(row.type, row.rule);
    return map;
  }();
  const auto found = rules.find(type);
  return found == rules.end() ? nullptr : found->second;
}

std::optional<std::int64_t> pieces(std::string_view type, const Operands& o) {
  if (o.has("sections")) return o.integer("sections");
  if (!o.has("dim") || !o.has("self")) return std::nullopt;
  const std::int64_t size = o.size("self", o.integer("dim"));
  if (type.starts_with("aten.unbind")) return size;
  // Of "split.sizes" it is a list, as long as the results.
  if (!type.ends_with(".Tensor") || !o.has("split_size")) return std::nullopt;
  if (o.integer("split_size") <= 0) return std::nullopt;  // the operator says what that is
  return std::max<std::int64_t>(1, (size - 1) / o.integer("split_size") + 1);
}

std::vector<std::string_view> ruled_operators() {
  std::vector<std::string_view> types;
  for (const Row& row : kRows) types.push_back(row.type);
  return types;
}

}  // namespace heterog::runtime

// The table of operators whose CPU kernels read or write where their operands tell them to, each
// with what has to hold. scripts/fuzz/operators.py found them; operators that trust more than a row
// says are not in operators/allowed_table.cc.
#include "runtime/kernels/operand_checks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/kernels/numbers.h"

namespace heterog::runtime {
namespace {

std::int64_t product(at::IntArrayRef sizes) {
  std::int64_t result = 1;
  for (std::int64_t size : sizes) result *= size;
  return result;
}

// A tensor without memory: what a forward operator makes of it has the sizes that its backward
// kernel takes for granted.
at::Tensor shape_of(const Operands& o, std::string_view name) {
  const at::Tensor& tensor = o.tensor(name);
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta));
}

void reduces(const Operands& o, std::int64_t count) {
  o.lie_in("reduction", o.integer("reduction"), 0, 2);
  o.have_elements("grad_output", o.integer("reduction") == at::Reduction::None ? count : 1);
}

// ------------------------------------------------------------------------------- losses

void nll_loss_backward(const Operands& o) {
  o.have_dims("self", 1, 2);
  const std::int64_t classes = o.size("self", -1);
  const std::int64_t rows = o.dims("self") == 2 ? o.size("self", 0) : 1;
  o.have_dims("target", 0, 1);
  o.have_elements("target", rows);
  o.have_elements("weight", classes);
  o.have_elements("total_weight", 1);
  reduces(o, rows);
  o.hold_or("target", classes, o.integer("ignore_index"));
}

void nll_loss2d_backward(const Operands& o) {
  o.have_dims("self", 4, 4);
  o.have_sizes("target", {o.size("self", 0), o.size("self", 2), o.size("self", 3)});
  o.have_elements("weight", o.size("self", 1));
  o.have_elements("total_weight", 1);
  reduces(o, o.tensor("target").numel());
  o.hold_or("target", o.size("self", 1), o.integer("ignore_index"));
}

void multi_margin_loss_backward(const Operands& o) {
  o.have_dims("self", 1, 2);
  const std::int64_t classes = o.size("self", -1);
  const std::int64_t rows = o.dims("self") == 2 ? o.size("self", 0) : 1;
  o.have_elements("target", rows);
  o.have_elements("weight", classes);
  reduces(o, rows);
  o.hold("target", 0, classes);
}

void multilabel_margin_loss_backward(const Operands& o) {
  o.have_dims("self", 1, 2);
  o.be_like("target", "self");
  o.be_like("is_target", "self");
  reduces(o, o.dims("self") == 2 ? o.size("self", 0) : 1);
  o.hold("target", -1, o.size("self", -1));
}

// Lengths, whether a list or a tensor.
std::vector<std::int64_t> lengths(const Operands& o, std::string_view name, std::int64_t count) {
  const std::vector<std::int64_t> list = o.integers(name);
  if (static_cast<std::int64_t>(list.size()) != count) {
    o.refuse(name, fmt::format("holds {} lengths, not {}", list.size(), count));
  }
  return list;
}

// log_probs [T, N, C]; targets [N, S] or all one after another.
void ctc_loss(const Operands& o) {
  o.have_dims("log_probs", 3, 3);
  o.have_dims("targets", 1, 2);
  const std::int64_t steps = o.size("log_probs", 0), rows = o.size("log_probs", 1);
  const std::int64_t classes = o.size("log_probs", 2);
  o.lie_in("blank", o.integer("blank"), 0, classes - 1);
  for (std::int64_t length : lengths(o, "input_lengths", rows)) {
    o.lie_in("input_lengths", length, 0, steps);
  }
  const std::vector<std::int64_t> of_targets = lengths(o, "target_lengths", rows);
  const bool padded = o.dims("targets") == 2;
  if (padded) o.have_sizes("targets", {rows, o.size("targets", 1)});
  const std::int64_t most = padded ? o.size("targets", 1) : o.tensor("targets").numel();
  std::int64_t longest = 0, sum = 0;
  for (std::int64_t length : of_targets) {
    o.lie_in("target_lengths", length, 0, most);
    longest = std::max(longest, length);
    sum += length;
  }
  if (!padded) o.have_elements("targets", sum);
  if (o.tensor("targets").is_cpu() &&
      at::isIntegralType(o.tensor("targets").scalar_type(), false)) {
    // What pads a row may be anything.
    const at::Tensor targets = o.tensor("targets").to(at::kLong).contiguous();
    const auto* next = numbers_of<std::int64_t>(targets);
    for (std::int64_t length : of_targets) {
      for (std::int64_t i = 0; i < length; ++i) o.lie_in("targets", next[i], 0, classes - 1);
      next += padded ? most : length;
    }
  }
  if (!o.has("log_alpha")) return;
  o.have_elements("grad", rows);
  o.have_elements("neg_log_likelihood", rows);
  o.have_sizes("log_alpha", {rows, steps, 2 * longest + 1});
}

// ------------------------------------------------------------------------------- embeddings

void embedding_dense_backward(const Operands& o) {
  std::vector<std::int64_t> sizes = o.tensor("indices").sizes().vec();
  sizes.push_back(o.size("grad_output", -1));
  o.have_sizes("grad_output", sizes);
  o.hold("indices", 0, o.integer("num_weights"));
}

// offsets: where each bag begins in `indices`.
void bags(const Operands& o, std::int64_t rows) {
  o.have_dims("indices", 1, 1);
  const std::int64_t count = o.tensor("indices").numel();
  o.hold("indices", 0, rows);
  o.lie_in("mode", o.integer("mode"), 0, 2);
  o.lie_in("padding_idx", o.integer("padding_idx"), -1, rows - 1);
  o.have_elements("per_sample_weights", count);
  if (!o.has("offsets")) return;
  o.have_dims("offsets", 1, 1);
  const at::Tensor& offsets = o.tensor("offsets");
  o.hold("offsets", 0, count + 1);
  if (!offsets.is_cpu() || offsets.numel() == 0) {
    if (count > 0 && offsets.numel() == 0) o.refuse("offsets", "is empty");
    return;
  }
  const at::Tensor ends = offsets.to(at::kLong).contiguous();
  const auto* begin = numbers_of<std::int64_t>(ends);
  o.lie_in("offsets", *begin, 0, 0);
  if (!std::is_sorted(begin, begin + ends.numel())) o.refuse("offsets", "does not ascend");
}

void embedding_bag(const Operands& o) {
  o.have_dims("weight", 2, 2);
  bags(o, o.size("weight", 0));
  if (o.flag("include_last_offset") && o.tensor("offsets").numel() == 0) {
    o.refuse("offsets", "is empty");
  }
}

void embedding_bag_backward(const Operands& o) {
  const bool of_weights = !o.has("num_weights");  // else of the samples' weights
  const std::int64_t rows = of_weights ? o.size("weight", 0) : o.integer("num_weights");
  o.have_dims("grad", 2, 2);
  bags(o, rows);
  const std::int64_t count = o.tensor("indices").numel(), of_bags = o.size("grad", 0);
  // Empty where the kernel makes it of the offsets.
  if (o.tensor("offset2bag").numel() > 0 || !o.has("offsets")) {
    o.have_elements("offset2bag", count);
  } else if (count > 0) {
    o.lie_in("offsets", o.tensor("offsets").numel(), 1, of_bags);
  }
  o.hold("offset2bag", 0, of_bags);
  if (of_weights) return o.have_sizes("weight", {rows, o.size("grad", 1)});
  o.have_elements("bag_size", of_bags);
  if (o.integer("mode") == 2) {
    o.have_sizes("maximum_indices", o.tensor("grad").sizes());
    o.hold("maximum_indices", -1, rows);
  }
}

// ------------------------------------------------------------------------------- norms

void batch_norm(const Operands& o) {
  o.have_dims("input", 2, 5);
  const std::int64_t channels = o.size("input", 1);
  o.lie_in("input", channels, 1, std::int64_t{1} << 31);
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    o.have_elements(name, channels);
  }
  const bool takes_statistics = o.has("training") && o.flag("training");
  if (!takes_statistics && !o.given("running_mean")) o.refuse("running_mean", "is missing");
  if (!takes_statistics && !o.given("running_var")) o.refuse("running_var", "is missing");
}

void batch_norm_backward(const Operands& o) {
  o.have_dims("input", 2, 5);
  o.be_like("grad_out", "input");
  const std::int64_t channels = o.size("input", 1);
  o.lie_in("input", channels, 1, std::int64_t{1} << 31);
  for (const char* name : {"weight", "running_mean", "running_var"}) {
    o.have_elements(name, channels);
  }
  // Which statistics are read; those of a step in training mode alone are saved.
  const bool saved = o.flag("train");
  for (const char* name :
       {saved ? "save_mean" : "running_mean", saved ? "save_invstd" : "running_var"}) {
    if (!o.given(name)) o.refuse(name, "is missing");
    o.have_elements(name, channels);
  }
}

// Rows of the trailing sizes `normalized_shape`.
std::int64_t normalised_rows(const Operands& o) {
  const std::vector<std::int64_t> tail = o.integers("normalized_shape");
  const auto sizes = o.tensor("input").sizes();
  if (tail.empty() || tail.size() > sizes.size() ||
      !std::equal(tail.rbegin(), tail.rend(), sizes.rbegin())) {
    o.refuse("input", fmt::format("of sizes {} does not end in {}", text_of_sizes(sizes),
                                  text_of_sizes(tail)));
  }
  o.be_like("grad_out", "input");
  o.have_elements("weight", product(tail));
  return product(sizes.slice(0, sizes.size() - tail.size()));
}

void layer_norm_backward(const Operands& o) {
  const std::int64_t rows = normalised_rows(o);
  o.have_elements("bias", product(o.integers("normalized_shape")));
  o.have_elements("mean", rows);
  o.have_elements("rstd", rows);
}

void rms_norm_backward(const Operands& o) { o.have_elements("rstd", normalised_rows(o)); }

void group_norm(const Operands& o) {
  const std::int64_t samples = o.integer("N"), channels = o.integer("C");
  const std::int64_t groups = o.integer("group");
  o.lie_in("N", samples, 0, o.tensor("input").numel());
  o.lie_in("C", channels, 1, o.tensor("input").numel());
  o.lie_in("group", groups, 1, channels);
  o.lie_in("C", channels % groups, 0, 0);
  o.have_dims("input", 2, 5);
  o.lie_in("N", samples, o.size("input", 0), o.size("input", 0));
  o.lie_in("C", channels, o.size("input", 1), o.size("input", 1));
  o.lie_in("HxW", o.integer("HxW"), 0, o.tensor("input").numel());
  o.have_elements("input", samples * channels * o.integer("HxW"));
  o.have_elements("weight", channels);
  if (o.has("bias")) return o.have_elements("bias", channels);
  o.be_like("grad_out", "input");
  o.have_elements("mean", samples * groups);
  o.have_elements("rstd", samples * groups);
}

// v = g · v / |v|, a norm for each index of the first or last dimension.
void weight_norm(const Operands& o) {
  const char* v = o.has("v") ? "v" : "saved_v";
  const char* g = o.has("g") ? "g" : "saved_g";
  const std::int64_t last = o.dims(v) - 1, dim = o.integer("dim");
  if (dim != 0 && dim != last) o.lie_in("dim", dim, 0, 0);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(o.dims(v)), 1);
  if (sizes.empty() || o.tensor(v).numel() == 0) o.refuse(v, "is empty");
  sizes[static_cast<std::size_t>(dim)] = o.size(v, dim);
  o.have_sizes(g, sizes);
  if (o.has("grad_w")) o.be_like("grad_w", v);
  if (o.has("saved_norms")) o.have_elements("saved_norms", o.size(v, dim));
}

void softmax_backward(const Operands& o) { o.be_like("grad_output", "output"); }

// ------------------------------------------------------------------------------- pooling

// Sizes of all but the last dimensions are equal, and what has gradients is not empty.
void same_planes(const Operands& o, std::int64_t plane_dims) {
  o.have_dims("self", plane_dims + 1, plane_dims + 2);
  o.have_dims("grad_output", o.dims("self"), o.dims("self"));
  std::vector<std::int64_t> sizes = o.tensor("grad_output").sizes().vec();
  for (std::int64_t i = 0; i < o.dims("self") - plane_dims; ++i) {
    sizes[static_cast<std::size_t>(i)] = o.size("self", i);
  }
  o.have_sizes("grad_output", sizes);
  if (o.tensor("self").numel() == 0 && o.tensor("grad_output").numel() > 0) {
    o.refuse("self", "is empty");
  }
}

template <int kDims>
void adaptive_pool_backward(const Operands& o) {
  same_planes(o, kDims);
}

template <int kDims>
void indexed_pool_backward(const Operands& o) {
  same_planes(o, kDims);
  o.be_like("indices", "grad_output");
  o.hold("indices", 0, product(o.tensor("self").sizes().slice(o.dims("self") - kDims)));
}

void max_pool2d_backward(const Operands& o) {
  indexed_pool_backward<2>(o);
  o.have_sizes("grad_output",
               std::get<0>(at::max_pool2d_with_indices(
                               shape_of(o, "self"), o.integers("kernel_size"), o.integers("stride"),
                               o.integers("padding"), o.integers("dilation"), o.flag("ceil_mode")))
                   .sizes());
}

void max_pool3d_backward(const Operands& o) { indexed_pool_backward<3>(o); }

std::optional<std::int64_t> divisor(const Operands& o) {
  if (!o.given("divisor_override")) return std::nullopt;
  return o.integer("divisor_override");
}

void avg_pool2d_backward(const Operands& o) {
  same_planes(o, 2);
  o.have_sizes("grad_output",
               at::avg_pool2d(shape_of(o, "self"), o.integers("kernel_size"), o.integers("stride"),
                              o.integers("padding"), o.flag("ceil_mode"),
                              o.flag("count_include_pad"), divisor(o))
                   .sizes());
}

void avg_pool3d_backward(const Operands& o) {
  same_planes(o, 3);
  o.have_sizes("grad_output",
               at::avg_pool3d(shape_of(o, "self"), o.integers("kernel_size"), o.integers("stride"),
                              o.integers("padding"), o.flag("ceil_mode"),
                              o.flag("count_include_pad"), divisor(o))
                   .sizes());
}

// ------------------------------------------------------------------------------- padding, sampling

template <int kDims, bool kReflects>
void pad_backward(const Operands& o) {
  o.have_dims("self", kDims + 1, kDims + 2);
  const std::vector<std::int64_t> padding = o.integers("padding");
  o.lie_in("padding", static_cast<std::int64_t>(padding.size()), 2 * kDims, 2 * kDims);
  std::vector<std::int64_t> sizes = o.tensor("self").sizes().vec();
  for (std::size_t i = 0; i < kDims; ++i) {
    std::int64_t& size = sizes[sizes.size() - 1 - i];
    const std::int64_t most = kReflects ? size - 1 : std::int64_t{1} << 31;
    o.lie_in("self", size, 1, std::int64_t{1} << 31);
    for (std::size_t j : {2 * i, 2 * i + 1}) o.lie_in("padding", padding[j], 1 - size, most);
    size += padding[2 * i] + padding[2 * i + 1];
    o.lie_in("padding", size, 1, std::int64_t{1} << 33);
  }
  o.have_sizes("grad_output", sizes);
}

// input [N, C, …], grid [N, …, dims], gradient [N, C, …of the grid].
template <int kDims>
void grid_sampler_backward(const Operands& o) {
  o.have_dims("input", kDims + 2, kDims + 2);
  o.have_dims("grid", kDims + 2, kDims + 2);
  std::vector<std::int64_t> sizes = o.tensor("grid").sizes().vec();
  sizes[0] = o.size("input", 0);
  sizes[kDims + 1] = kDims;
  o.have_sizes("grid", sizes);
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, o.size("input", 1));
  o.have_sizes("grad_output", sizes);
  o.lie_in("interpolation_mode", o.integer("interpolation_mode"), 0, kDims == 2 ? 2 : 1);
  o.lie_in("padding_mode", o.integer("padding_mode"), 0, 2);
  for (std::int64_t i = 2; i < kDims + 2; ++i) {
    o.lie_in("input", o.size("input", i), 1, std::int64_t{1} << 31);
  }
}

// Scales that fit the sizes: the kernels go through the input by them.
void upsample_aa(const Operands& o) {
  const bool backward = o.has("grad_output");
  const std::vector<std::int64_t> out = o.integers("output_size");
  o.lie_in("output_size", static_cast<std::int64_t>(out.size()), 2, 2);
  std::vector<std::int64_t> in;
  if (backward) {
    in = o.integers("input_size");
    o.lie_in("input_size", static_cast<std::int64_t>(in.size()), 4, 4);
    o.have_sizes("grad_output", {in[0], in[1], out[0], out[1]});
  } else {
    o.have_dims("self", 4, 4);
    in = o.tensor("self").sizes().vec();
  }
  const char* names[] = {"scales_h", "scales_w"};
  for (std::size_t i = 0; i < 2; ++i) {
    if (!o.given(names[i])) continue;
    const double expected = o.real(names[i]) * static_cast<double>(in[i + 2]);
    if (!(std::abs(expected - static_cast<double>(out[i])) < 1)) {
      o.refuse(names[i], fmt::format("makes {} of {}, not {}", expected, in[i + 2], out[i]));
    }
  }
}

// ------------------------------------------------------------------------------- distances

void cdist_backward(const Operands& o) {
  const auto least = [&](const char* name) { return o.have_dims(name, 2, 64); };
  least("x1");
  least("x2");
  const auto one = o.tensor("x1").sizes(), two = o.tensor("x2").sizes();
  o.lie_in("x2", two.back(), one.back(), one.back());
  std::vector<std::int64_t> sizes =
      at::infer_size(one.slice(0, one.size() - 2), two.slice(0, two.size() - 2));
  sizes.push_back(one[one.size() - 2]);
  sizes.push_back(two[two.size() - 2]);
  o.have_sizes("grad", sizes);
  o.have_sizes("cdist", sizes);
}

void pdist_backward(const Operands& o) {
  o.have_dims("self", 2, 2);
  const std::int64_t rows = o.size("self", 0);
  o.lie_in("self", rows, 1, std::int64_t{1} << 31);
  o.have_sizes("grad", {rows * (rows - 1) / 2});
  o.have_sizes("pdist", {rows * (rows - 1) / 2});
}

// ------------------------------------------------------------------------------- attention

// query [N, H, L, E], key and value [N, H, S, E].
void attention(const Operands& o) {
  o.have_dims("query", 4, 4);
  o.have_dims("key", 4, 4);
  const auto query = o.tensor("query").sizes();
  o.have_sizes("key", {query[0], query[1], o.size("key", 2), query[3]});
  o.be_like("value", "key");
  for (std::string_view name : {"query", "key"}) {
    if (o.tensor(name).numel() == 0) o.refuse(name, "is empty");
  }
  if (o.given("attn_mask")) {
    const auto mask = o.tensor("attn_mask").sizes();
    const std::int64_t whole[] = {query[0], query[1], query[2], o.size("key", 2)};
    if (mask.size() != 2 && mask.size() != 4) o.have_dims("attn_mask", 4, 4);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      const std::int64_t size = whole[i + 4 - mask.size()];
      if (mask[i] != 1) o.lie_in("attn_mask", mask[i], size, size);
    }
  }
  if (!o.has("logsumexp")) return;
  o.be_like("grad_out", "query");
  o.be_like("out", "query");
  o.have_sizes("logsumexp", {query[0], query[1], query[2]});
}

// ------------------------------------------------------------------------------- views

void reshape_alias(const Operands& o) {
  const std::vector<std::int64_t> sizes = o.integers("size"), strides = o.integers("stride");
  o.have_elements("self", product(sizes));
  const at::Tensor& self = o.tensor("self");
  if (!self.is_contiguous()) o.refuse("self", "is not contiguous");
  if (strides.size() != sizes.size()) o.refuse("stride", "is not as long as 'size'");
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    o.lie_in("size", sizes[i], 0, std::max<std::int64_t>(self.numel(), 1));
    o.lie_in("stride", strides[i], 0, std::max<std::int64_t>(self.numel(), 1));
    last += std::max<std::int64_t>(sizes[i] - 1, 0) * strides[i];
  }
  if (self.numel() > 0) o.lie_in("stride", last, 0, self.numel() - 1);
}

// gradient […, windows, …, size] of windows of `size` every `step` along `dim`.
void unfold_backward(const Operands& o) {
  std::vector<std::int64_t> sizes = o.integers("input_sizes");
  const auto dims = static_cast<std::int64_t>(sizes.size());
  o.lie_in("dim", o.integer("dim"), -dims, dims - 1);
  std::int64_t& along =
      sizes[static_cast<std::size_t>(o.integer("dim") + (o.integer("dim") < 0 ? dims : 0))];
  for (std::int64_t size : sizes) o.lie_in("input_sizes", size, 0, std::int64_t{1} << 40);
  o.lie_in("size", o.integer("size"), 1, along);
  o.lie_in("step", o.integer("step"), 1, std::int64_t{1} << 40);
  along = (along - o.integer("size")) / o.integer("step") + 1;
  sizes.push_back(o.integer("size"));
  o.have_sizes("grad_in", sizes);
}

// Only the layout matters.
void any_values(const Operands&) {}

struct Row {
  std::string_view type;
  OperandCheck check;
};

constexpr Row kRows[] = {
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss2d_backward.default", nll_loss2d_backward},
    {"aten.multi_margin_loss_backward.default", multi_margin_loss_backward},
    {"aten.multilabel_margin_loss_backward.default", multilabel_margin_loss_backward},
    {"aten._ctc_loss.default", ctc_loss},
    {"aten._ctc_loss.Tensor", ctc_loss},
    {"aten._ctc_loss_backward.default", ctc_loss},
    {"aten._ctc_loss_backward.Tensor", ctc_loss},
    {"aten.embedding_dense_backward.default", embedding_dense_backward},
    {"aten._embedding_bag.default", embedding_bag},
    {"aten._embedding_bag_forward_only.default", embedding_bag},
    {"aten._embedding_bag_backward.default", embedding_bag_backward},
    {"aten._embedding_bag_dense_backward.default", embedding_bag_backward},
    {"aten._embedding_bag_per_sample_weights_backward.default", embedding_bag_backward},
    {"aten.native_batch_norm.default", batch_norm},
    {"aten._native_batch_norm_legit.no_stats", batch_norm},
    {"aten._native_batch_norm_legit_functional.default", batch_norm},
    {"aten._native_batch_norm_legit_no_training.default", batch_norm},
    {"aten.native_batch_norm_backward.default", batch_norm_backward},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten.native_group_norm.default", group_norm},
    {"aten.native_group_norm_backward.default", group_norm},
    {"aten._weight_norm_interface.default", weight_norm},
    {"aten._weight_norm_interface_backward.default", weight_norm},
    {"aten._softmax_backward_data.default", softmax_backward},
    {"aten._log_softmax_backward_data.default", softmax_backward},
    {"aten._adaptive_avg_pool2d_backward.default", adaptive_pool_backward<2>},
    {"aten._adaptive_avg_pool3d_backward.default", adaptive_pool_backward<3>},
    {"aten.adaptive_max_pool2d_backward.default", indexed_pool_backward<2>},
    {"aten.adaptive_max_pool3d_backward.default", indexed_pool_backward<3>},
    {"aten.fractional_max_pool2d_backward.default", indexed_pool_backward<2>},
    {"aten.fractional_max_pool3d_backward.default", indexed_pool_backward<3>},
    {"aten.max_pool2d_with_indices_backward.default", max_pool2d_backward},
    {"aten.max_pool3d_with_indices_backward.default", max_pool3d_backward},
    {"aten.avg_pool2d_backward.default", avg_pool2d_backward},
    {"aten.avg_pool3d_backward.default", avg_pool3d_backward},
    {"aten.reflection_pad1d_backward.default", pad_backward<1, true>},
    {"aten.reflection_pad2d_backward.default", pad_backward<2, true>},
    {"aten.reflection_pad3d_backward.default", pad_backward<3, true>},
    {"aten.replication_pad1d_backward.default", pad_backward<1, false>},
    {"aten.replication_pad2d_backward.default", pad_backward<2, false>},
    {"aten.replication_pad3d_backward.default", pad_backward<3, false>},
    {"aten.grid_sampler_2d_backward.default", grid_sampler_backward<2>},
    {"aten.grid_sampler_3d_backward.default", grid_sampler_backward<3>},
    {"aten._upsample_bilinear2d_aa.default", upsample_aa},
    {"aten._upsample_bilinear2d_aa_backward.default", upsample_aa},
    {"aten._upsample_bicubic2d_aa.default", upsample_aa},
    {"aten._upsample_bicubic2d_aa_backward.default", upsample_aa},
    {"aten._cdist_backward.default", cdist_backward},
    {"aten._pdist_backward.default", pdist_backward},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention},
    {"aten._reshape_alias.default", reshape_alias},
    {"aten.unfold_backward.default", unfold_backward},
    {"aten.median.dim", any_values},
    {"aten.nanmedian.dim", any_values},
};

}  // namespace

void check_lists(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const auto& formal = schema.arguments();
  const Operands operands(schema, stack);
  for (std::size_t i = 0; i < formal.size(); ++i) {
    const auto length = formal[i].N();
    const c10::IValue& value = stack[i];
    if (!length || *length < 2 || !value.isList()) continue;
    const std::size_t held = value.toListRef().size();
    const auto& unset = formal[i].default_value();
    if (held == 0 && unset && unset->isList() && unset->toListRef().empty()) continue;
    if (held == 0 && formal[i].name() == "stride") continue;  // pooling goes by its kernel's size
    if (held != static_cast<std::size_t>(*length) && held != 1) {
      operands.refuse(formal[i].name(), fmt::format("holds {} items, not {}", held, *length));
    }
  }
}

void check_operands(OperandCheck check, const c10::FunctionSchema& schema,
                    torch::jit::Stack& stack) {
  check(Operands(schema, stack));
  for (c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().is_cpu()) continue;
    const at::Tensor& tensor = value.toTensor();
    // Attention goes by strides, and cuts of one projection are usual; but it takes for granted
    // that the numbers of a row lie side by side.
    const bool fits =
        check == attention ? has_dense_rows(tensor) : tensor.is_non_overlapping_and_dense();
    if (!fits) value = tensor.contiguous();
  }
}

OperandCheck operand_check(std::string_view type) {
  static const auto* rows = [] {
    auto* made = new std::unordered_map<std::string_view, OperandCheck>;
    for (const Row& row : kRows) made->emplace(row.type, row.check);
    return made;
  }();
  const auto found = rows->find(type);
  return found == rows->end() ? nullptr : found->second;
}

std::vector<std::string_view> checked_operators() {
  std::vector<std::string_view> types;
  for (const Row& row : kRows) types.push_back(row.type);
  return types;
}

}  // namespace heterog::runtime

// The table of facts, and the look-up of an operator in it.
#include "operators/facts.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace heterog::operators {
namespace {

using enum Family;
using enum Indices::Of;
using Random::kCounter;
using Random::kGenerator;

// A row for a packet, all of whose overloads are alike, or for one overload alone; an overload's
// own row then says everything of it. An operator that is not listed has the defaults.
struct Row {
  std::string_view name;
  Facts facts;
};

// Of dropouts by their own names; "dropout_p" is that of attention.
constexpr RandomSwitch kTrain = {"train", 2, false};
constexpr std::string_view kReshape = "aten.reshape.default";

constexpr Row kTable[] = {
    // Products.
    {"mm", {.family = kMatMul}},
    {"bmm", {.family = kMatMul}},
    {"mv", {.family = kMatMul}},
    {"dot", {.family = kMatMul}},
    {"addmm", {.family = kMatMulAdd}},
    {"baddbmm", {.family = kMatMulAdd}},
    {"addmv", {.family = kMatMulAdd}},
    // By a weight of 4 bits a number, operand 1, which is unpacked first.
    {"linear4bit", {.family = kMatMul}},
    {"linear4bit_backward", {.family = kMatMul}},
    {"convolution", {.family = kConvolution}},
    {"convolution_backward", {.family = kConvolutionBackward}},

    // Normalisation, softmax.
    {"_native_batch_norm_legit_functional",
     {.family = kBatchNorm,
      .positive = true,
      .batch_statistics = BatchStatistics{.training = 5, .samples = 1}}},
    {"_native_batch_norm_legit",
     {.family = kBatchNorm,
      .positive = true,
      .batch_statistics = BatchStatistics{.training = 3, .samples = 1, .running = false}}},
    {"native_batch_norm_backward",
     {.family = kBatchNormBackward,
      .positive = true,
      .batch_statistics = BatchStatistics{.training = 7, .samples = 2, .backward = true}}},
    {"native_batch_norm", {.family = kBatchNorm, .positive = true}},
    {"_native_batch_norm_legit_no_training", {.positive = true}},
    {"batch_norm", {.positive = true}},
    {"native_group_norm", {.family = kBatchNorm}},
    {"native_group_norm_backward", {.family = kBatchNormBackward}},
    {"native_layer_norm", {.family = kLayerNorm}},
    {"native_layer_norm_backward", {.family = kLayerNormBackward}},
    {"_softmax", {.family = kSoftmax}},
    {"_softmax_backward_data", {.family = kSoftmaxBackward}},
    {"_log_softmax", {.family = kSoftmax}},
    {"_log_softmax_backward_data", {.family = kSoftmax}},
    {"_safe_softmax", {.family = kSoftmax}},
    {"logsumexp", {.family = kSoftmax}},

    // Pooling.
    {"max_pool2d_with_indices", {.family = kPooling}},
    {"max_pool2d_with_indices_backward", {.family = kPoolingBackward, .pooled_places = true}},
    {"avg_pool2d", {.family = kPooling}},
    {"avg_pool2d_backward", {.family = kPoolingBackward}},
    {"_adaptive_avg_pool2d", {.family = kPooling, .adaptive = true}},
    {"_adaptive_avg_pool2d_backward", {.family = kPoolingBackward, .adaptive = true}},
    {"adaptive_max_pool2d_backward", {.adaptive = true, .pooled_places = true}},

    // Reductions.
    {"sum", {.family = kReduction}},
    {"mean", {.family = kReduction}},
    {"amax", {.family = kReduction}},
    {"amin", {.family = kReduction}},
    {"max", {.family = kReduction}},
    {"min", {.family = kReduction}},
    {"argmax", {.family = kReduction}},
    {"any", {.family = kReduction}},
    {"all", {.family = kReduction}},
    {"prod", {.family = kReduction}},
    {"var", {.family = kReduction}},
    {"var_mean", {.family = kReduction}},
    {"std", {.family = kReduction}},
    {"norm", {.family = kReduction}},
    {"linalg_vector_norm", {.family = kReduction}},
    {"cumsum", {.family = kReduction}},

    // Look-ups, losses of labels.
    {"embedding", {.family = kGather, .indices = {kRows, 1, 0}}},
    {"embedding_dense_backward",
     {.family = kScatterAdd,
      .indices = {kNumber, 1, 2},
      .sparse_gradient = SparseGradient{.rows = 0, .indices = 1}}},
    {"index", {.family = kGather, .indices = {kItem, 1, 0}}},
    {"index_select", {.family = kGather, .indices = {kDimension, 2, 0}}},
    {"gather", {.family = kGather, .indices = {kDimension, 2, 0}}},
    {"index_put", {.indices = {kItem, 1, 0}}},
    {"index_add", {.indices = {kDimension, 2, 0}}},
    {"scatter", {.indices = {kDimension, 2, 0}}},
    {"scatter_add", {.indices = {kDimension, 2, 0}}},
    {"scatter_reduce", {.indices = {kDimension, 2, 0}}},
    {"nll_loss", {.indices = {kClasses, 1, 0}}},
    {"nll_loss2d", {.indices = {kClasses, 1, 0}}},
    {"nll_loss_nd", {.indices = {kClasses, 1, 0}}},
    {"nll_loss_forward", {.family = kIndexedLoss, .indices = {kClasses, 1, 0}}},
    {"nll_loss_backward", {.family = kIndexedLossBackward, .indices = {kClasses, 2, 1}}},
    {"nll_loss2d_forward", {.family = kIndexedLoss, .indices = {kClasses, 1, 0}}},
    {"nll_loss2d_backward", {.family = kIndexedLossBackward, .indices = {kClasses, 2, 1}}},

    // Views. Those with several results (split, unbind) view the same base with each of them.
    {"_conj", {.alias = true}},
    {"_neg_view", {.alias = true}},
    {"_reshape_alias", {.alias = true}},
    {"_unsafe_view",
     {.family = kEmpty, .alias = true, .called_as = kReshape, .same_elements = true}},
    {"alias", {.alias = true}},
    {"as_strided", {.alias = true}},
    {"chunk", {.alias = true}},
    {"detach", {.alias = true}},
    {"diagonal", {.alias = true}},
    {"expand", {.alias = true, .same_elements = true}},
    {"expand_as", {.alias = true}},
    {"lift_fresh", {.alias = true}},
    {"movedim", {.alias = true}},
    {"narrow.default", {.alias = true}},
    {"permute", {.alias = true, .same_elements = true}},
    {"real", {.alias = true}},
    {"reshape", {.alias = true}},
    {"select", {.alias = true, .same_elements = true}},
    {"slice", {.alias = true, .same_elements = true}},
    {"split.Tensor", {.alias = true}},
    {"split_with_sizes", {.alias = true}},
    {"squeeze", {.alias = true}},
    {"swapaxes", {.alias = true}},
    {"swapdims", {.alias = true}},
    {"t", {.alias = true, .same_elements = true}},
    {"transpose", {.alias = true, .same_elements = true}},
    {"unbind", {.alias = true}},
    {"unfold", {.alias = true}},
    {"unsafe_chunk", {.alias = true}},
    {"unsafe_split", {.alias = true}},
    {"unsafe_split_with_sizes", {.alias = true}},
    {"unsqueeze", {.alias = true, .same_elements = true}},
    {"view.default", {.alias = true, .called_as = kReshape, .same_elements = true}},
    {"view", {.alias = true}},
    {"view_as", {.alias = true}},
    {"view_as_complex", {.alias = true}},
    {"view_as_real", {.alias = true}},

    // Copies.
    {"clone", {.family = kCopy, .same_elements = true, .by_element = true}},
    {"copy", {.family = kCopy}},
    {"_to_copy", {.family = kCopy, .same_elements = true, .by_element = true}},
    {"cat", {.family = kCopy}},
    {"stack", {.family = kCopy}},
    {"constant_pad_nd", {.family = kCopy}},
    {"repeat", {.family = kCopy}},
    {"flip", {.family = kCopy}},
    {"roll", {.family = kCopy}},
    {"slice_backward", {.family = kCopy}},
    {"select_backward", {.family = kCopy}},
    {"slice_scatter", {.family = kCopy}},
    {"select_scatter", {.family = kCopy}},

    // One element at a time.
    {"add.Tensor", {.sum = true, .in_place_twin = true}},
    {"add.Scalar", {.in_place_twin = true}},
    {"sub.Tensor", {.in_place_twin = true}},
    {"mul", {.in_place_twin = true}},
    {"div.Tensor", {.in_place_twin = true}},
    {"div.Scalar", {.in_place_twin = true}},
    {"addcmul", {.in_place_twin = true}},
    {"addcdiv", {.in_place_twin = true, .positive = true}},
    {"lerp", {.in_place_twin = true}},
    {"_fused_adam", {.in_place_twin = true, .multi_tensor = true, .positive = true}},
    {"_fused_adamw", {.in_place_twin = true, .multi_tensor = true, .positive = true}},
    {"_fused_sgd", {.in_place_twin = true, .multi_tensor = true}},
    {"masked_fill.Scalar", {.in_place_twin = true}},
    {"neg", {.in_place_twin = true}},
    {"reciprocal", {.in_place_twin = true}},
    {"exp", {.in_place_twin = true}},
    {"tanh", {.in_place_twin = true}},
    {"sigmoid", {.in_place_twin = true}},
    {"relu", {.in_place_twin = true}},
    {"sqrt", {.in_place_twin = true, .positive = true}},
    {"rsqrt", {.in_place_twin = true, .positive = true}},
    {"pow", {.by_element = true, .positive = true}},
    {"abs", {.by_element = true}},
    {"sign", {.by_element = true}},
    {"clamp", {.by_element = true}},
    {"where", {.by_element = true}},
    {"maximum", {.by_element = true}},
    {"minimum", {.by_element = true}},
    {"log", {.positive = true}},
    {"log1p", {.positive = true}},
    {"special_log1p", {.positive = true}},
    {"special_xlog1py", {.positive = true}},
    {"binary_cross_entropy", {.positive = true}},
    {"binary_cross_entropy_backward", {.positive = true}},

    // Random numbers.
    {"native_dropout", {.random = kCounter, .random_switch = kTrain}},
    {"dropout", {.random = kGenerator, .random_switch = kTrain}},
    {"alpha_dropout", {.random = kGenerator, .random_switch = kTrain}},
    {"feature_dropout", {.random = kGenerator, .random_switch = kTrain}},
    {"feature_alpha_dropout", {.random = kGenerator, .random_switch = kTrain}},
    {"bernoulli", {.positive = true, .random = kCounter, .draw = Draw::kBernoulli}},
    {"bernoulli.p", {.family = kFill, .random = kCounter, .draw = Draw::kBernoulli}},
    {"rand", {.family = kFill, .random = kCounter, .draw = Draw::kUniform}},
    {"rand_like", {.family = kFill, .random = kCounter, .draw = Draw::kUniform}},
    {"uniform", {.family = kFill, .random = kCounter, .draw = Draw::kUniform}},
    {"randn", {.family = kFill, .random = kCounter, .draw = Draw::kNormal}},
    {"randn_like", {.family = kFill, .random = kCounter, .draw = Draw::kNormal}},
    {"normal_functional", {.family = kFill, .random = kCounter, .draw = Draw::kNormal}},
    {"normal", {.positive = true, .random = kCounter, .draw = Draw::kNormal}},
    {"normal.float_float", {.family = kFill, .random = kCounter, .draw = Draw::kNormal}},
    {"exponential", {.family = kFill, .random = kCounter, .draw = Draw::kExponential}},
    {"log_normal", {.family = kFill, .random = kCounter, .draw = Draw::kLogNormal}},
    {"geometric", {.family = kFill, .random = kCounter, .draw = Draw::kGeometric}},
    {"cauchy", {.family = kFill, .random = kCounter, .draw = Draw::kCauchy}},
    {"randint", {.family = kFill, .random = kCounter, .draw = Draw::kIntegers}},
    {"randint_like", {.family = kFill, .random = kCounter, .draw = Draw::kIntegers}},
    {"randint_like.Tensor", {.random = kGenerator}},
    {"randperm", {.random = kCounter, .draw = Draw::kPermutation}},
    {"multinomial", {.positive = true, .random = kCounter, .draw = Draw::kChoices}},
    {"rrelu_with_noise_functional",
     {.random = kCounter, .draw = Draw::kSlopes, .random_switch = {{"training", 4, true}}}},
    {"scaled_dot_product_attention",
     {.random = kGenerator, .random_switch = {{"dropout_p", 4, true}}}},
    {"_scaled_dot_product_attention_math",
     {.random = kGenerator, .random_switch = {{"dropout_p", 4, true}}}},
    {"_scaled_dot_product_efficient_attention",
     {.random = kGenerator, .random_switch = {{"dropout_p", 5, true}}}},
    {"_scaled_dot_product_efficient_attention_backward",
     {.random = kGenerator, .random_switch = {{"dropout_p", 9, false}}}},
    // Named after the CPU, this is the one fused form of which forward and backward are the same on
    // every kind of device: exported steps have it, and the runtime finds the device's kernel.
    {"_scaled_dot_product_flash_attention_for_cpu",
     {.family = kAttention,
      .random = kCounter,
      .draw = Draw::kWeights,
      .random_switch = {{"dropout_p", 3, true}}}},
    {"_scaled_dot_product_flash_attention_for_cpu_backward",
     {.family = kAttentionBackward,
      .random = kCounter,
      .draw = Draw::kWeights,
      .random_switch = {{"dropout_p", 6, true}}}},

    // What is made of nothing.
    {"empty", {.family = kEmpty}},
    {"empty_like", {.family = kEmpty}},
    {"new_empty", {.family = kEmpty}},
    {"empty_strided", {.family = kEmpty}},
    {"new_empty_strided", {.family = kEmpty}},
    {"zeros", {.family = kFill}},
    {"ones", {.family = kFill}},
    {"full", {.family = kFill}},
    {"arange", {.family = kFill}},
    {"scalar_tensor", {.family = kFill}},
    {"zeros_like", {.family = kFill}},
    {"ones_like", {.family = kFill}},
    {"full_like", {.family = kFill}},
    {"new_zeros", {.family = kFill}},
    {"new_ones", {.family = kFill}},
    {"new_full", {.family = kFill}},
};

// PyTorch's, and the project's own.
constexpr std::string_view kNamespaces[] = {"aten.", "heterog."};

}  // namespace

const Facts& facts(std::string_view type) {
  static constexpr Facts kUnlisted;
  static const auto index = [] {
    std::unordered_map<std::string_view, const Facts*> map;
    for (const Row& row : kTable) ENSURE(map.emplace(row.name, &row.facts).second);
    return map;
  }();
  const auto of = std::ranges::find_if(
      kNamespaces, [&](std::string_view name) { return type.starts_with(name); });
  if (of == std::ranges::end(kNamespaces)) return kUnlisted;
  type.remove_prefix(of->size());
  for (std::string_view name : {type, type.substr(0, type.rfind('.'))}) {
    if (const auto found = index.find(name); found != index.end()) return *found->second;
  }
  return kUnlisted;
}

std::vector<std::string_view> rows_of_facts() {
  std::vector<std::string_view> names;
  for (const Row& row : kTable) names.push_back(row.name);
  return names;
}

}  // namespace heterog::operators

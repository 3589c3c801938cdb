// Split rules of normalisations, pooling and resampling.
#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// Operators on images [N, C, …] that treat every sample (and, but for the convolutions, every
// channel) apart: pooling, resampling, and their backward operators. All operands with a batch are
// cut along N; `trait` is the rank of an unbatched image.
Reason per_image(RuleContext& op) {
  const auto operands = op.operands();
  if (operands.empty() || any_local(operands)) return kReadsLocal;
  reduce_all(operands);
  if (!any_sliced(operands)) {
    op.set_outputs(kSameRule);
    return {};
  }
  for (const Operand& operand : operands) {
    if (!cut_alike(operand, operands[0]) || operand.rule.dim != 0) return kCutApart;
    if (operand.shape.size() <= op.trait()) return kAcrossBatch;
  }
  op.set_outputs(operands[0].rule);
  return {};
}

// native_layer_norm(x, sizes, weight, bias, eps) → result, mean, 1/deviation.
Reason layer_norm(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto sizes = op.integers(1, "normalized_shape");
  if (!x || !sizes || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  for (const Operand& operand : op.operands()) {
    if (operand.sliced() && &operand != x) return kCutApart;
  }
  if (x->sliced() && x->rule.dim + sizes->size() >= x->shape.size()) return kAcrossBatch;
  op.set_outputs(x->rule);
  return {};
}

// native_layer_norm_backward(grad, x, sizes, mean, 1/deviation, weight, bias, mask).
Reason layer_norm_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  Operand* x = op.operand(1);
  const auto sizes = op.integers(2, "normalized_shape");
  Operand* mean = op.operand(3);
  Operand* deviation = op.operand(4);
  if (!grad || !x || !sizes || !mean || !deviation || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  for (const Operand* operand : {x, mean, deviation}) {
    if (!cut_alike(*operand, *grad)) return kCutApart;
  }
  for (std::size_t place : {5, 6}) {
    if (op.operand(place) && !op.operand(place)->same()) return kCutApart;
  }
  if (x->sliced() && x->rule.dim + sizes->size() >= x->shape.size()) return kAcrossBatch;
  op.set_output(0, grad->rule);
  op.set_output(1, grad->sliced() ? kSumRule : kSameRule);
  op.set_output(2, grad->sliced() ? kSumRule : kSameRule);
  return {};
}

// Attention, every sample apart: query, key, value [N, …], a mask that is each sample's own or one
// for all and, backward, what forward gave and its gradient. All that is cut is cut along N, and so
// are the results. `trait`: positional operands, which all have samples.
Reason attention(RuleContext& op) {
  const auto operands = op.operands();
  if (operands.size() < op.trait() || any_local(operands)) return kReadsLocal;
  reduce_all(operands);
  if (!any_sliced(operands)) {
    op.set_outputs(kSameRule);
    return {};
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool mask = i >= op.trait();
    if (mask && operands[i].same()) continue;
    if (!cut_alike(operands[i], operands[0])) return kCutApart;
    if (operands[i].rule.dim != 0 || operands[i].rule.outer != 1) return kAcrossBatch;
    if (operands[i].shape[0] != operands[0].shape[0]) return kAcrossBatch;
    if (mask && operands[i].shape.size() != 4) return kAcrossBatch;
  }
  op.set_outputs(operands[0].rule);
  return {};
}

// The number of samples, which the group normalisations are told.
bool is_count_of(const Value* value, const Operand& x) {
  return value && !x.shape.empty() && value->kind == Value::Kind::kSize &&
         value->integer == x.shape[0];
}

// native_group_norm(x [N, C, …], weight, bias, N, …) → result, mean, 1/deviation [N, groups].
Reason group_norm(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  for (const Operand& operand : op.operands()) {
    if (operand.sliced() && &operand != x) return kCutApart;
  }
  if (x->sliced() && (x->rule.dim != 0 || !is_count_of(op.argument(3, "N"), *x))) {
    return kAcrossBatch;
  }
  if (x->sliced()) op.follows(3);
  op.set_outputs(x->rule);
  return {};
}

// native_group_norm_backward(grad, x, mean, 1/deviation, weight, N, …).
Reason group_norm_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  if (!grad || !op.operand(1) || !op.operand(2) || !op.operand(3) || any_local(op.operands())) {
    return kReadsLocal;
  }
  reduce_all(op.operands());
  for (std::size_t i = 1; i <= 3; ++i) {
    if (!cut_alike(*op.operand(i), *grad)) return kCutApart;
  }
  if (op.operand(4) && !op.operand(4)->same()) return kCutApart;
  if (grad->sliced() && (grad->rule.dim != 0 || !is_count_of(op.argument(5, "N"), *grad))) {
    return kAcrossBatch;
  }
  if (grad->sliced()) op.follows(5);
  op.set_output(0, grad->rule);
  op.set_output(1, grad->sliced() ? kSumRule : kSameRule);
  op.set_output(2, grad->sliced() ? kSumRule : kSameRule);
  return {};
}

// Batch normalisation over slices of [N, C, …]. Training: the statistics are those of the slice;
// what the backward op reads of them stays with the slice, and the running ones, where the op
// returns them, are share-weighted means. `trait` is the place of the flag `training`; x is the
// first argument, the result the first output, the saved statistics the next two.
Reason batch_norm(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  for (const Operand& operand : op.operands()) {
    if (operand.sliced() && &operand != x) return kCutApart;
  }
  if (!x->sliced()) {
    op.set_outputs(kSameRule);
    return {};
  }
  if (x->rule.dim != 0 || x->shape.size() < 2) return kAcrossBatch;
  const bool training = op.flag(op.trait(), "training");
  op.set_outputs(training ? kMeanRule : kSameRule);
  op.set_output(0, x->rule);
  op.set_output(1, training ? kLocalRule : kSameRule);
  op.set_output(2, training ? kLocalRule : kSameRule);
  return {};
}

// native_batch_norm_backward(grad, x, weight, running mean, running var, saved mean, saved
// 1/deviation, training, …).
Reason batch_norm_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  Operand* x = op.operand(1);
  if (!grad || !x) return kUnusualArguments;
  reduce_all(op.operands());
  if (!cut_alike(*grad, *x)) return kCutApart;
  for (std::size_t place = 2; place <= 6; ++place) {
    Operand* operand = op.operand(place);
    if (!operand || operand->same()) continue;
    if (!operand->local() || place < 5 || !x->sliced()) return kCutApart;
  }
  if (x->sliced() && x->rule.dim != 0) return kAcrossBatch;
  // Training on a slice takes the statistics of that slice.
  if (x->sliced() && op.flag(7, "train")) {
    for (std::size_t place : {5, 6}) {
      if (!op.operand(place) || !op.operand(place)->local()) return kCutApart;
    }
  }
  op.set_output(0, x->rule);
  op.set_output(1, x->sliced() ? kSumRule : kSameRule);
  op.set_output(2, x->sliced() ? kSumRule : kSameRule);
  return {};
}

constexpr RuleEntry kNnRules[] = {
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.native_group_norm.default", group_norm},
    {"aten.native_group_norm_backward.default", group_norm_backward},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention, 3},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention, 6},
    {"aten._native_batch_norm_legit_functional.default", batch_norm, 5},
    {"aten._native_batch_norm_legit.no_stats", batch_norm, 3},
    {"aten.native_batch_norm_backward.default", batch_norm_backward},
    {"aten.max_pool2d_with_indices.default", per_image, 3},
    {"aten.max_pool2d_with_indices_backward.default", per_image, 3},
    {"aten.avg_pool2d.default", per_image, 3},
    {"aten.avg_pool2d_backward.default", per_image, 3},
    {"aten._adaptive_avg_pool2d.default", per_image, 3},
    {"aten._adaptive_avg_pool2d_backward.default", per_image, 3},
    {"aten.adaptive_max_pool2d.default", per_image, 3},
    {"aten.adaptive_max_pool2d_backward.default", per_image, 3},
    {"aten.upsample_nearest2d.default", per_image, 3},
    {"aten.upsample_nearest2d.vec", per_image, 3},
    {"aten.upsample_nearest2d_backward.default", per_image, 3, 2},
    {"aten.upsample_bilinear2d.default", per_image, 3},
    {"aten.upsample_bilinear2d.vec", per_image, 3},
    {"aten.upsample_bilinear2d_backward.default", per_image, 3, 2},
    {"aten.reflection_pad2d.default", per_image, 3},
    {"aten.reflection_pad2d_backward.default", per_image, 3},
    {"aten.replication_pad2d.default", per_image, 3},
    {"aten.replication_pad2d_backward.default", per_image, 3},
};

}  // namespace

std::span<const RuleEntry> nn_rules() { return kNnRules; }

}  // namespace heterog::graph

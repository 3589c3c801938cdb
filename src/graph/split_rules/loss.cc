// Split rules of losses. Backward operators that divide by their own number of elements have none:
// the exporter decomposes them, so that the divisor is a scalar of the whole batch.
#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kTotal = 2 };  // at::Reduction

// mse_loss(x, target, reduction): `trait` is the place of the reduction.
Reason loss(RuleContext& op) {
  Operand* x = op.operand(0);
  Operand* target = op.operand(1);
  if (!x || !target || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  const std::span<const Affine> full =
      x->shape.size() >= target->shape.size() ? x->shape : target->shape;
  const Sliced sliced = broadcast_slices(op.operands(), full);
  if (!sliced.reason.empty()) return sliced.reason;
  const std::int64_t reduction = op.integer(op.trait(), "reduction").value_or(kMean);
  if (sliced.rule.kind != SplitKind::kConcat || reduction == kNone) {
    op.set_output(0, sliced.rule);
  } else {
    op.set_output(0, reduction == kMean ? kMeanRule : kSumRule);
  }
  return {};
}

// binary_cross_entropy(x, target, …), which does not broadcast.
Reason cross_entropy(RuleContext& op) {
  Operand* x = op.operand(0);
  Operand* target = op.operand(1);
  if (x && target && !cut_alike(*x, *target)) return kCutApart;
  return loss(op);
}

// mse_loss_backward(grad, x, target, reduction).
Reason loss_backward(RuleContext& op) {
  if (any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  const std::int64_t reduction = op.integer(op.trait(), "reduction").value_or(kMean);
  const Sliced sliced = broadcast_slices(op.operands(), op.output_shape(0));
  if (!sliced.reason.empty()) return sliced.reason;
  if (sliced.rule.kind == SplitKind::kConcat && reduction == kMean) {
    return "divides by the number of its own elements";
  }
  op.set_output(0, sliced.rule);
  return {};
}

// A row for each sample, not the classes of one.
bool rows_of_classes(const Operand& x) {
  return !x.sliced() || (x.rule.dim == 0 && x.shape.size() >= 2);
}

// nll_loss_forward(x [N, C, …], target [N, …], weight, reduction, ignored) → loss, total weight.
// The mean is over the weight of the labels that are not ignored, which differs from slice to
// slice in ways that the graph cannot know: it is no mean by shares.
Reason nll_loss(RuleContext& op) {
  Operand* x = op.operand(0);
  Operand* target = op.operand(1);
  if (!x || !target || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  if (!cut_alike(*x, *target) || !rows_of_classes(*x)) return kCutApart;
  const std::int64_t reduction = op.integer(3, "reduction").value_or(kMean);
  if (!x->sliced()) {
    op.set_outputs(kSameRule);
    return {};
  }
  if (reduction == kMean) return "its divisor is known to the whole batch only";
  op.set_output(0, reduction == kNone ? x->rule : kSumRule);
  op.set_output(1, reduction == kNone ? kSameRule : kSumRule);
  return {};
}

// nll_loss_backward(grad, x, target, weight, reduction, ignored, total weight): with the total
// weight of the whole batch, a slice's gradient is its exact share.
Reason nll_loss_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  Operand* x = op.operand(1);
  Operand* target = op.operand(2);
  Operand* total = op.operand(6);
  if (!grad || !x || !target || !total || any_local(op.operands())) return kReadsLocal;
  reduce_all(op.operands());
  if (!cut_alike(*x, *target) || !rows_of_classes(*x)) return kCutApart;
  if (total->sliced() || (grad->sliced() && !cut_alike(*grad, *x))) return kCutApart;
  op.set_output(0, x->rule);
  return {};
}

constexpr RuleEntry kLossRules[] = {
    {"aten.mse_loss.default", loss, 2},
    {"aten.smooth_l1_loss.default", loss, 2},
    {"aten.huber_loss.default", loss, 2},
    {"aten.binary_cross_entropy.default", cross_entropy, 3},
    {"aten.binary_cross_entropy_with_logits.default", loss, 4},
    {"aten.mse_loss_backward.default", loss_backward, 3},
    {"aten.smooth_l1_loss_backward.default", loss_backward, 3},
    {"aten.huber_loss_backward.default", loss_backward, 3},
    {"aten.binary_cross_entropy_backward.default", loss_backward, 4},
    {"aten.nll_loss_forward.default", nll_loss},
    {"aten.nll_loss2d_forward.default", nll_loss},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss2d_backward.default", nll_loss_backward},
};

}  // namespace

std::span<const RuleEntry> loss_rules() { return kLossRules; }

}  // namespace heterog::graph

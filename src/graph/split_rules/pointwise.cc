// Split rules of operators that work element by element on operands that broadcast.
#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// In which operands the operator is linear; it decides what partial sums may pass through.
enum Linearity : std::uint8_t {
  kNone,      // in none
  kIdentity,  // result = the operand: slices of any kind pass
  kUnary,     // in its only tensor operand
  kSum,       // in all operands together; a number in place of one makes it affine
  kProduct,   // in each operand alone
  kQuotient,  // in the first
  kChoice,    // where(condition, x, y): in x and y together
  kFill,      // masked_fill(x, mask, value): in x and value together
  kCast,      // in its only operand if both types are floats, or the result is wider
};

bool is_zero(const Value* value) {
  if (!value) return false;
  switch (value->kind) {
    case Value::Kind::kInt:
    case Value::Kind::kBool:
      return value->integer.c == 0;
    case Value::Kind::kFloat:
      return value->number == 0;
    default:
      return false;
  }
}

// A number beside a partial value: a mean takes it, a sum would count it once a slice.
SplitRule shifted(Operand& operand, bool by_zero) {
  if (operand.rule.kind == SplitKind::kSum && !by_zero) reduce(operand);
  return partial_rule(operand.rule.kind);
}

SplitRule product(Operand& a, Operand& b) {
  if (a.partial() && b.partial()) {
    reduce(a);
    reduce(b);
  }
  return partial_rule(a.partial() ? a.rule.kind : b.rule.kind);
}

// The rule of the result where nothing is sliced and something is a partial sum or mean.
SplitRule partial_result(RuleContext& op) {
  const auto operands = op.operands();
  Operand* first = op.operand(0);
  Operand* second = op.operand(1);
  switch (op.trait()) {
    case kIdentity:
    case kUnary:
      return partial_rule(operands[0].rule.kind);
    case kCast: {
      if (!op.has_output(0)) break;
      const TensorId out = op.graph().outputs(op.op())[0];
      if (is_floating(op.graph().tensor(out).dtype)) return partial_rule(operands[0].rule.kind);
      break;
    }
    case kSum:
      if (first && second) {
        Operand* const addends[] = {first, second};
        return join_addends(addends);
      }
      return shifted(operands[0], is_zero(op.argument(first ? 1 : 0, "other")));
    case kProduct:
      if (first && second) return product(*first, *second);
      return partial_rule(operands[0].rule.kind);
    case kQuotient:
      if (!first) break;
      if (second) reduce(*second);
      return partial_rule(first->rule.kind);
    case kChoice: {
      if (!first || !second || !op.operand(2)) break;
      reduce(*first);
      Operand* const addends[] = {second, op.operand(2)};
      return join_addends(addends);
    }
    case kFill: {
      if (!first || !second) break;
      reduce(*second);
      if (Operand* value = op.operand(2)) {
        Operand* const addends[] = {first, value};
        return join_addends(addends);
      }
      return shifted(*first, is_zero(op.argument(2, "value")));
    }
    default:
      break;
  }
  reduce_all(operands);
  return kSameRule;
}

// Row numbers stay what they are in types that hold every one of them.
bool keeps_rows(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

Reason local_result(RuleContext& op) {
  const Operand& x = op.operands()[0];
  if (op.trait() != kIdentity && op.trait() != kCast) return kReadsLocal;
  if (!op.has_output(0)) return kUnusualArguments;
  const DType out = op.graph().tensor(op.graph().outputs(op.op())[0]).dtype;
  if (x.rows() && !keeps_rows(out)) return kReadsLocal;
  op.set_outputs(x.rule);
  return {};
}

Reason pointwise(RuleContext& op) {
  const auto operands = op.operands();
  if (operands.empty()) return kUnusualArguments;
  if (any_local(operands)) return local_result(op);
  if (!any_sliced(operands)) {
    op.set_outputs(any_partial(operands) ? partial_result(op) : kSameRule);
    return {};
  }
  reduce_all(operands);
  const Sliced sliced = broadcast_slices(operands, op.output_shape(0));
  op.set_outputs(sliced.rule);
  return sliced.reason;
}

// log_sigmoid_forward → result, buffer; on some devices the buffer is empty.
Reason with_buffer(RuleContext& op) {
  const Reason reason = pointwise(op);
  if (op.has_output(1) && !has_batch(op.output_shape(1))) op.set_output(1, kSameRule);
  return reason;
}

// A parameter, its gradient and its state, none of which knows of samples.
Reason update_kernel(RuleContext& op) {
  const auto operands = op.operands();
  if (operands.empty()) return kUnusualArguments;
  if (any_local(operands)) return kReadsLocal;
  if (any_sliced(operands)) return kAcrossBatch;
  reduce_all(operands);
  op.set_outputs(kSameRule);
  return {};
}

constexpr RuleEntry kPointwiseRules[] = {
    {"aten.alias.default", pointwise, kIdentity},
    {"aten.clone.default", pointwise, kIdentity},
    {"aten.detach.default", pointwise, kIdentity},
    {"aten.lift_fresh_copy.default", pointwise, kIdentity},
    {"aten._to_copy.default", pointwise, kCast},
    {"aten.neg.default", pointwise, kUnary},
    {"aten.add.Tensor", pointwise, kSum},
    {"aten.add.Scalar", pointwise, kSum},
    {"aten.sub.Tensor", pointwise, kSum},
    {"aten.sub.Scalar", pointwise, kSum},
    {"aten.rsub.Scalar", pointwise, kSum},
    {"aten.mul.Tensor", pointwise, kProduct},
    {"aten.mul.Scalar", pointwise, kProduct},
    {"aten.div.Tensor", pointwise, kQuotient},
    {"aten.div.Scalar", pointwise, kQuotient},
    {"aten.where.self", pointwise, kChoice},
    {"aten.masked_fill.Scalar", pointwise, kFill},
    {"aten.masked_fill.Tensor", pointwise, kFill},
    {"aten.copy.default", pointwise},
    {"aten.fill.Scalar", pointwise},
    {"aten.fill.Tensor", pointwise},
    {"aten.abs.default", pointwise},
    {"aten.addcdiv.default", pointwise},
    {"aten.addcmul.default", pointwise},
    {"aten.bitwise_and.Tensor", pointwise},
    {"aten.bitwise_not.default", pointwise},
    {"aten.bitwise_or.Tensor", pointwise},
    {"aten.ceil.default", pointwise},
    {"aten.clamp.default", pointwise},
    {"aten.clamp_max.default", pointwise},
    {"aten.clamp_min.default", pointwise},
    {"aten.cos.default", pointwise},
    {"aten.div.Tensor_mode", pointwise},
    {"aten.elu.default", pointwise},
    {"aten.elu_backward.default", pointwise},
    {"aten.eq.Scalar", pointwise},
    {"aten.eq.Tensor", pointwise},
    {"aten.erf.default", pointwise},
    {"aten.exp.default", pointwise},
    {"aten.floor.default", pointwise},
    {"aten.ge.Scalar", pointwise},
    {"aten.ge.Tensor", pointwise},
    {"aten.gelu.default", pointwise},
    {"aten.gelu_backward.default", pointwise},
    {"aten.gt.Scalar", pointwise},
    {"aten.gt.Tensor", pointwise},
    {"aten.hardsigmoid.default", pointwise},
    {"aten.hardsigmoid_backward.default", pointwise},
    {"aten.hardswish.default", pointwise},
    {"aten.hardswish_backward.default", pointwise},
    {"aten.hardtanh.default", pointwise},
    {"aten.hardtanh_backward.default", pointwise},
    {"aten.isnan.default", pointwise},
    {"aten.le.Scalar", pointwise},
    {"aten.le.Tensor", pointwise},
    {"aten.leaky_relu.default", pointwise},
    {"aten.leaky_relu_backward.default", pointwise},
    {"aten.lerp.Scalar", pointwise},
    {"aten.log.default", pointwise},
    {"aten.log1p.default", pointwise},
    {"aten.log_sigmoid_forward.default", with_buffer},
    {"aten.log_sigmoid_backward.default", pointwise},
    {"aten.logical_and.default", pointwise},
    {"aten.logical_not.default", pointwise},
    {"aten.logical_or.default", pointwise},
    {"aten.lt.Scalar", pointwise},
    {"aten.lt.Tensor", pointwise},
    {"aten.maximum.default", pointwise},
    {"aten.minimum.default", pointwise},
    {"aten.ne.Scalar", pointwise},
    {"aten.ne.Tensor", pointwise},
    {"aten.pow.Scalar", pointwise},
    {"aten.pow.Tensor_Scalar", pointwise},
    {"aten.pow.Tensor_Tensor", pointwise},
    {"aten.reciprocal.default", pointwise},
    {"aten.relu.default", pointwise},
    {"aten.remainder.Scalar", pointwise},
    {"aten.round.default", pointwise},
    {"aten.rsqrt.default", pointwise},
    {"aten.sgn.default", pointwise},
    {"aten.sigmoid.default", pointwise},
    {"aten.sigmoid_backward.default", pointwise},
    {"aten.sign.default", pointwise},
    {"aten.silu.default", pointwise},
    {"aten.silu_backward.default", pointwise},
    {"aten.sin.default", pointwise},
    {"aten.softplus.default", pointwise},
    {"aten.softplus_backward.default", pointwise},
    {"aten.sqrt.default", pointwise},
    {"aten.square.default", pointwise},
    {"aten.tanh.default", pointwise},
    {"aten.tanh_backward.default", pointwise},
    {"aten.threshold.default", pointwise},
    {"aten.threshold_backward.default", pointwise},
    {"aten.native_dropout.default", pointwise},
    {"aten.native_dropout_backward.default", pointwise},
    {"aten.bernoulli.default", pointwise},
    {"aten.bernoulli.Tensor", pointwise},
    {"aten.normal.Tensor_float", pointwise},
    {"aten.normal.float_Tensor", pointwise},
    {"aten.normal.Tensor_Tensor", pointwise},
    {"aten.rrelu_with_noise_functional.default", pointwise},
    {"aten.rrelu_with_noise_backward.default", pointwise},
    {"aten._fused_adam.tensor_lr", update_kernel},
    {"aten._fused_adamw.tensor_lr", update_kernel},
    {"aten._fused_sgd.tensor_lr", update_kernel},
};

}  // namespace

std::span<const RuleEntry> pointwise_rules() { return kPointwiseRules; }

}  // namespace heterog::graph

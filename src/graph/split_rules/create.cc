// Split rules of operators that make a tensor from sizes, or by chance.
#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// zeros, full, rand, randint: every sample is made alike. Operands only lend their type.
Reason create(RuleContext& op) {
  const auto shape = op.output_shape(0);
  const auto dim = batch_dim(shape);
  if (!dim && has_batch(shape)) return kNoBatchDim;
  op.set_output(0, dim ? concat_rule(*dim) : kSameRule);
  return {};
}

// zeros_like, rand_like, normal: as their operand is cut.
Reason create_like(RuleContext& op) {
  Operand* like = op.operand(0);
  if (!like) return kUnusualArguments;
  if (!like->sliced()) return create(op);
  op.set_output(0, like->rule);
  return {};
}

// Zeros made from a partial sum, mostly a gradient, are a partial sum themselves: each instance
// makes its own, and waits for no other.
bool zeros_add_up(RuleContext& op) {
  const Operand* like = op.operand(0);
  if (!like || !like->partial() || has_batch(op.output_shape(0))) return false;
  if (op.graph().op(op.op()).phase == Phase::kUpdate) return false;
  op.set_output(0, like->rule);
  return true;
}
Reason new_zeros(RuleContext& op) { return zeros_add_up(op) ? Reason{} : create(op); }
Reason zeros_like(RuleContext& op) { return zeros_add_up(op) ? Reason{} : create_like(op); }

// eye: the ones go on from slice to slice. randperm: so do the numbers.
Reason in_order(RuleContext& op) {
  if (has_batch(op.output_shape(0))) return kAcrossBatch;
  op.set_output(0, kSameRule);
  return {};
}

// multinomial(weights, …): each row of weights has its own choices.
Reason choices(RuleContext& op) {
  Operand* weights = op.operand(0);
  if (!weights) return kUnusualArguments;
  if (weights->local()) return kReadsLocal;
  reduce(*weights);
  if (weights->sliced() && (weights->rule.dim != 0 || weights->shape.size() != 2)) {
    return kAcrossBatch;
  }
  if (!weights->sliced() && has_batch(op.output_shape(0))) return kAcrossBatch;
  op.set_output(0, weights->rule);
  return {};
}

bool is_int(const Value* value, std::int64_t number) {
  return value && value->kind == Value::Kind::kInt && value->integer.c == number;
}

// arange(end), arange(start, end), arange(start, end, step); `trait` is the place of the end. From
// 0 by 1 to a multiple of the batch it numbers the rows, on a slice those of the slice. Anything
// else that depends on the batch names rows of the whole: backwards, shifted, every other one.
Reason arange(RuleContext& op) {
  const auto shape = op.output_shape(0);
  if (!has_batch(shape)) {
    op.set_output(0, kSameRule);
    return {};
  }
  const Value* end = op.argument(op.trait(), "end");
  const Value* step = op.trait() == 1 ? op.argument(2, "step") : nullptr;
  const DType dtype = op.graph().tensor(op.graph().outputs(op.op())[0]).dtype;
  const bool from_zero = op.trait() == 0 || is_int(op.argument(0, "start"), 0);
  const bool by_one = !step || is_int(step, 1);
  const bool whole = dtype == DType::kInt64 || dtype == DType::kInt32;
  if (!from_zero || !by_one || !whole || !batch_dim(shape) || !end ||
      end->kind != Value::Kind::kSize || end->integer != shape[0]) {
    return kAcrossBatch;
  }
  op.follows(op.trait());
  op.set_output(0, kLocalRule);
  return {};
}

constexpr RuleEntry kCreateRules[] = {
    {"aten.zeros.default", create, 0, 0},
    {"aten.ones.default", create, 0, 0},
    {"aten.full.default", create, 0, 0},
    {"aten.empty.memory_format", create, 0, 0},
    {"aten.scalar_tensor.default", create},
    {"aten.new_zeros.default", new_zeros, 0, 1},
    {"aten.new_ones.default", create, 0, 1},
    {"aten.new_full.default", create, 0, 1},
    {"aten.new_empty.default", create, 0, 1},
    {"aten.rand.default", create, 0, 0},
    {"aten.randn.default", create, 0, 0},
    {"aten.randint.default", create, 0, 1},
    {"aten.randint.low", create, 0, 2},
    {"aten.normal.float_float", create, 0, 2},
    {"aten.zeros_like.default", zeros_like},
    {"aten.ones_like.default", create_like},
    {"aten.full_like.default", create_like},
    {"aten.empty_like.default", create_like},
    {"aten.rand_like.default", create_like},
    {"aten.randn_like.default", create_like},
    {"aten.randint_like.default", create_like},
    {"aten.randint_like.low_dtype", create_like},
    {"aten.bernoulli.p", create_like},
    {"aten.uniform.default", create_like},
    {"aten.normal_functional.default", create_like},
    {"aten.exponential.default", create_like},
    {"aten.log_normal.default", create_like},
    {"aten.geometric.default", create_like},
    {"aten.cauchy.default", create_like},
    {"aten.multinomial.default", choices},
    {"aten.eye.default", in_order},
    {"aten.randperm.default", in_order},
    {"aten.arange.default", arange, 0},
    {"aten.arange.start", arange, 1},
    {"aten.arange.start_step", arange, 1},
};

}  // namespace

std::span<const RuleEntry> create_rules() { return kCreateRules; }

}  // namespace heterog::graph

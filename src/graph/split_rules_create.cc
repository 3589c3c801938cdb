// Split rules of operators that make a tensor from sizes alone.
#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// zeros, full, rand: every sample is made alike. Operands only lend their type.
Reason create(RuleContext& op) {
  const auto shape = op.output_shape(0);
  const auto dim = batch_dim(shape);
  if (!dim && has_batch(shape)) return kNoBatchDim;
  op.set_output(0, dim ? concat_rule(*dim) : kSameRule);
  return {};
}

// zeros_like, rand_like: as their operand is cut.
Reason create_like(RuleContext& op) {
  Operand* like = op.operand(0);
  if (!like) return kUnusualArguments;
  if (!like->sliced()) return create(op);
  op.set_output(0, like->rule);
  return {};
}

// eye: the ones go on from slice to slice.
Reason eye(RuleContext& op) {
  if (has_batch(op.output_shape(0))) return kAcrossBatch;
  op.set_output(0, kSameRule);
  return {};
}

// arange over the batch counts the rows of the slice, not of the whole.
Reason arange(RuleContext& op) {
  op.set_output(0, has_batch(op.output_shape(0)) ? kLocalRule : kSameRule);
  return {};
}

constexpr RuleEntry kRules[] = {
    {"aten.zeros.default", create},
    {"aten.ones.default", create},
    {"aten.full.default", create},
    {"aten.empty.memory_format", create},
    {"aten.scalar_tensor.default", create},
    {"aten.new_zeros.default", create},
    {"aten.new_ones.default", create},
    {"aten.new_full.default", create},
    {"aten.new_empty.default", create},
    {"aten.rand.default", create},
    {"aten.zeros_like.default", create_like},
    {"aten.ones_like.default", create_like},
    {"aten.full_like.default", create_like},
    {"aten.empty_like.default", create_like},
    {"aten.rand_like.default", create_like},
    {"aten.bernoulli.p", create_like},
    {"aten.eye.default", eye},
    {"aten.arange.default", arange},
    {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},
};

}  // namespace

std::span<const RuleEntry> create_rules() { return kRules; }

}  // namespace heterog::graph

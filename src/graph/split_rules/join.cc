// Split rules of operators that put several tensors together: cat, stack, slice_scatter.
#include <vector>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// Rule of a join of which nothing is sliced: linear in all parts together.
Reason join_unsliced(RuleContext& op, std::span<Operand> parts) {
  std::vector<Operand*> addends;
  for (Operand& part : parts) addends.push_back(&part);
  op.set_output(0, join_addends(addends));
  return {};
}

// Batches side by side along the batch dimension: each is one more outer factor.
Reason join_batches(RuleContext& op, std::span<const Operand> parts) {
  const SplitRule first = parts[0].rule;
  const std::int64_t rest = parts[0].shape[first.dim].a / first.outer;
  std::int64_t outer = 0;
  for (const Operand& part : parts) {
    if (!part.sliced() || part.rule.dim != first.dim) return kAcrossBatch;
    if (part.shape[first.dim].a != rest * part.rule.outer) return kAcrossBatch;
    outer += part.rule.outer;
  }
  op.set_output(0, concat_rule(first.dim, outer));
  return {};
}

Reason cat(RuleContext& op) {
  const auto parts = op.operand_list(0);
  if (parts.empty()) return kUnusualArguments;
  if (any_local(parts)) return kReadsLocal;
  if (!any_sliced(parts)) return join_unsliced(op, parts);
  reduce_all(parts);
  const std::size_t rank = op.output_shape(0).size();
  const std::size_t dim = wrap_dim(op.integer(1, "dim").value_or(0), rank);
  for (const Operand& part : parts) {
    if (part.shape.size() != rank) return kUnusualArguments;  // empty parts of old times
  }
  if (parts[0].sliced() && parts[0].rule.dim == dim) return join_batches(op, parts);
  for (const Operand& part : parts) {
    if (!part.sliced() || !cut_alike(part, parts[0]) || part.rule.dim == dim) return kCutApart;
  }
  op.set_output(0, parts[0].rule);
  return {};
}

Reason stack(RuleContext& op) {
  const auto parts = op.operand_list(0);
  if (parts.empty()) return kUnusualArguments;
  if (any_local(parts)) return kReadsLocal;
  if (!any_sliced(parts)) return join_unsliced(op, parts);
  reduce_all(parts);
  const std::size_t dim = wrap_dim(op.integer(1, "dim").value_or(0), op.output_shape(0).size());
  for (const Operand& part : parts) {
    if (!cut_alike(part, parts[0])) return kCutApart;
  }
  const SplitRule rule = parts[0].rule;
  op.set_output(0, concat_rule(rule.dim + (rule.dim >= dim ? 1 : 0), rule.outer));
  return {};
}

// select_scatter(x, part, dim, index), slice_scatter(x, part, dim, …).
Reason scatter_part(RuleContext& op) {
  Operand* x = op.operand(0);
  Operand* part = op.operand(1);
  if (!x || !part) return kUnusualArguments;
  if (any_local(op.operands())) return kReadsLocal;
  if (!any_sliced(op.operands())) return join_unsliced(op, op.operands());
  reduce_all(op.operands());
  const std::size_t dim = wrap_dim(op.integer(2, "dim").value_or(0), x->shape.size());
  SplitRule rule = part->rule;
  if (op.trait() != 0 && rule.dim >= dim) ++rule.dim;  // select: the part lacks the dimension
  if (!x->sliced() || !part->sliced() || !(x->rule == rule) || rule.dim == dim ||
      x->shape[x->rule.dim] != part->shape[part->rule.dim]) {
    return kCutApart;
  }
  op.set_output(0, x->rule);
  return {};
}

constexpr RuleEntry kJoinRules[] = {
    {"aten.cat.default", cat},
    {"aten.stack.default", stack},
    {"aten.select_scatter.default", scatter_part, 1},
    {"aten.slice_scatter.default", scatter_part, 0},
};

}  // namespace

std::span<const RuleEntry> join_rules() { return kJoinRules; }

}  // namespace heterog::graph

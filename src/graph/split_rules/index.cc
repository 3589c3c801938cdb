// Split rules of operators that look rows up: embeddings, gather and scatter, indexing by tensors.
#include <algorithm>
#include <optional>
#include <vector>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// embedding(weight, indices, …).
Reason embedding(RuleContext& op) {
  Operand* weight = op.operand(0);
  Operand* indices = op.operand(1);
  if (!weight || !indices || any_local(op.operands())) return kReadsLocal;
  reduce(*indices);
  if (weight->sliced()) return kAcrossBatch;
  if (indices->sliced()) {
    reduce(*weight);
    op.set_output(0, indices->rule);
  } else {
    op.set_output(0, weight->rule);  // linear in the rows
  }
  return {};
}

// embedding_dense_backward(grad, indices, rows, padding, scale by frequency).
Reason embedding_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  Operand* indices = op.operand(1);
  if (!grad || !indices || any_local(op.operands())) return kReadsLocal;
  if (op.flag(4, "scale_grad_by_freq")) return kAcrossBatch;
  reduce(*indices);
  if (!grad->sliced() && !indices->sliced()) {
    op.set_output(0, grad->rule);
    return {};
  }
  if (!cut_alike(*grad, *indices)) return kCutApart;
  op.set_output(0, kSumRule);
  return {};
}

// gather(x, dim, index): other dimensions are walked side by side, of x perhaps a part.
Reason gather(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto at = op.integer(1, "dim");
  Operand* index = op.operand(2);
  if (!x || !index || !at || any_local(op.operands())) return kUnusualArguments;
  reduce(*index);
  if (!x->sliced() && !index->sliced()) {
    op.set_output(0, x->rule);
    return {};
  }
  reduce(*x);
  const std::size_t dim = wrap_dim(*at, x->shape.size());
  const bool alike = cut_alike(*x, *index) && x->rule.dim != dim;
  const bool looked_up = !x->sliced() && index->rule.dim == dim;
  if (!alike && !looked_up) return kCutApart;
  op.set_output(0, index->rule);
  return {};
}

// scatter, scatter_add(x, dim, index, source): all cut alike, off the dimension; `source` may be a
// number. Of x and of the source only a part may be walked: then the rows are not side by side.
Reason scatter(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto at = op.integer(1, "dim");
  Operand* index = op.operand(2);
  Operand* source = op.operand(3);
  if (!x || !index || !at || any_local(op.operands())) return kUnusualArguments;
  reduce_all(op.operands());
  if (!any_sliced(op.operands())) {
    op.set_output(0, kSameRule);
    return {};
  }
  const std::size_t dim = wrap_dim(*at, x->shape.size());
  if (!cut_alike(*x, *index) || (source && !cut_alike(*source, *index)) || index->rule.dim == dim) {
    return kCutApart;
  }
  op.set_output(0, x->rule);
  return {};
}

// index_select(x, dim, index).
Reason index_select(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto at = op.integer(1, "dim");
  Operand* index = op.operand(2);
  if (!x || !index || !at || any_local(op.operands())) return kUnusualArguments;
  reduce(*index);
  const std::size_t dim = wrap_dim(*at, x->shape.size());
  if (x->sliced()) {
    if (index->sliced() || x->rule.dim == dim) return kAcrossBatch;
    op.set_output(0, x->rule);
  } else if (index->sliced()) {
    if (dim >= x->shape.size()) return kUnusualArguments;
    reduce(*x);
    op.set_output(0, concat_rule(dim, index->rule.outer));
  } else {
    op.set_output(0, x->rule);
  }
  return {};
}

// index_add(x, dim, index, source): x plus rows of the source, linear in both together.
Reason index_add(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto at = op.integer(1, "dim");
  Operand* index = op.operand(2);
  Operand* source = op.operand(3);
  if (!x || !index || !source || !at || any_local(op.operands())) return kUnusualArguments;
  reduce(*index);
  Operand* const addends[] = {x, source};
  const std::size_t dim = wrap_dim(*at, x->shape.size());
  if (!any_sliced(op.operands())) {
    op.set_output(0, join_addends(addends));
    return {};
  }
  reduce(*source);
  if (!source->sliced()) return kCutApart;
  if (source->rule.dim != dim) {
    if (!cut_alike(*x, *source) || index->sliced()) return kCutApart;
    op.set_output(0, x->rule);
    return {};
  }
  // Rows of the slices go to rows of one whole tensor.
  if (x->sliced() || !index->sliced() || index->rule.outer != source->rule.outer) {
    return kCutApart;
  }
  if (x->rule.kind == SplitKind::kMean) reduce(*x);
  if (x->use == OperandUse::kReduced) return kCutApart;
  if (x->same()) x->use = OperandUse::kOnce;
  op.set_output(0, kSumRule);
  return {};
}

// The indices of index and index_put: one an indexed dimension, None for those taken whole.
struct Indices {
  std::vector<Operand*> by_dim;  // of x; null: taken whole
  std::size_t rank = 0;          // of the indices broadcast together
  std::size_t place = 0;         // where their dimensions stand in the result
};

std::optional<Indices> indices_of(RuleContext& op, std::size_t rank) {
  const auto args = op.graph().args(op.op());
  if (args.size() < 2 || args[1].kind != Value::Kind::kList) return std::nullopt;
  const auto operands = op.operand_list(1);
  Indices result;
  result.by_dim.assign(rank, nullptr);
  std::size_t next = 0, first = rank, last = 0, count = 0;
  for (std::size_t i = 0; i < args[1].items.size(); ++i) {
    if (args[1].items[i].kind != Value::Kind::kTensor) continue;
    if (i >= rank) return std::nullopt;
    Operand& index = operands[next++];
    const DType dtype = op.graph().tensor(index.tensor).dtype;
    if (dtype == DType::kBool || dtype == DType::kUInt8) return std::nullopt;  // a mask
    result.by_dim[i] = &index;
    result.rank = std::max(result.rank, index.shape.size());
    first = std::min(first, i);
    last = i;
    ++count;
  }
  if (count == 0) return std::nullopt;
  result.place = last - first + 1 == count ? first : 0;  // apart: they go to the front
  return result;
}

// Where the batch stands in the shape that index gives and index_put takes.
struct Indexed {
  SplitRule rule = kSameRule;
  bool rows_of_x = false;  // x itself is sliced
  Reason reason;
};

Indexed indexed(const Operand& x, const Indices& indices) {
  Indexed result;
  for (std::size_t dim = 0; dim < indices.by_dim.size(); ++dim) {
    const Operand* index = indices.by_dim[dim];
    if (!index) continue;
    SplitRule rule = index->rule;
    if (index->local()) {
      // The slice's own row numbers, into a tensor that is cut in the same rows.
      const auto rows = batch_dim(index->shape);
      if (!rows || !index->rows() || !x.sliced() || x.rule.dim != dim || x.rule.outer != 1 ||
          x.shape[dim] != index->shape[*rows]) {
        return {.reason = kReadsLocal};
      }
      result.rows_of_x = true;
      rule = concat_rule(*rows);
    }
    if (rule.kind != SplitKind::kConcat) continue;
    rule.dim =
        static_cast<std::uint8_t>(rule.dim + indices.rank - index->shape.size() + indices.place);
    if (result.rule.kind == SplitKind::kConcat && !(result.rule == rule)) {
      return {.reason = kCutApart};
    }
    result.rule = rule;
  }
  if (!x.sliced() || result.rows_of_x) return result;
  if (result.rule.kind == SplitKind::kConcat || indices.by_dim[x.rule.dim]) {
    return {.reason = kAcrossBatch};
  }
  // x is cut along a dimension that is taken whole.
  std::size_t dim = x.rule.dim, before = 0;
  for (std::size_t i = 0; i < dim; ++i) before += indices.by_dim[i] ? 1 : 0;
  dim = dim - before + (dim - before >= indices.place ? indices.rank : 0);
  result.rule = concat_rule(dim, x.rule.outer);
  result.rows_of_x = true;
  return result;
}

// index(x, [index or None, …]).
Reason index(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || x->local()) return kReadsLocal;
  const auto indices = indices_of(op, x->shape.size());
  if (!indices) return kUnusualArguments;
  for (Operand* each : indices->by_dim) {
    if (each) reduce(*each);
  }
  const Indexed result = indexed(*x, *indices);
  if (!result.reason.empty()) return result.reason;
  if (result.rule.kind == SplitKind::kConcat) reduce(*x);
  op.set_output(0, result.rule.kind == SplitKind::kConcat ? result.rule : x->rule);
  return {};
}

// index_put(x, [index or None, …], values, accumulate).
Reason index_put(RuleContext& op) {
  Operand* x = op.operand(0);
  Operand* values = op.operand(2);
  if (!x || !values || x->local() || values->local()) return kReadsLocal;
  const auto indices = indices_of(op, x->shape.size());
  if (!indices) return kUnusualArguments;
  for (Operand* each : indices->by_dim) {
    if (each) reduce(*each);
  }
  const Indexed target = indexed(*x, *indices);
  if (!target.reason.empty()) return target.reason;
  if (target.rule.kind != SplitKind::kConcat) {
    if (values->sliced()) return kCutApart;
    Operand* const addends[] = {x, values};
    op.set_output(0, join_addends(addends));
    return {};
  }
  reduce(*values);
  const std::size_t rank = x->shape.size() + indices->rank;
  const std::size_t indexed_dims = static_cast<std::size_t>(
      std::count_if(indices->by_dim.begin(), indices->by_dim.end(), [](auto* i) { return i; }));
  // The values broadcast into the shape of what is indexed.
  const std::size_t shift = rank - indexed_dims - values->shape.size();
  if (values->sliced()) {
    if (values->rule.dim + shift != target.rule.dim || values->rule.outer != target.rule.outer) {
      return kCutApart;
    }
  } else if (target.rule.dim >= shift && values->shape[target.rule.dim - shift] != Affine{0, 1}) {
    return kCutApart;
  }
  if (target.rows_of_x) {
    op.set_output(0, x->rule);
    return {};
  }
  // Rows of a whole tensor, from all slices: they add up, what is overwritten does not.
  if (!op.flag(3, "accumulate")) return kAcrossBatch;
  if (x->use == OperandUse::kReduced) return kCutApart;
  if (x->same()) x->use = OperandUse::kOnce;
  if (x->rule.kind == SplitKind::kMean) return kCutApart;
  op.set_output(0, kSumRule);
  return {};
}

constexpr RuleEntry kIndexRules[] = {
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.gather.default", gather},
    {"aten.scatter.src", scatter},
    {"aten.scatter.value", scatter},
    {"aten.scatter_add.default", scatter},
    {"aten.index_select.default", index_select},
    {"aten.index_add.default", index_add},
    {"aten.index.Tensor", index},
    {"aten.index_put.default", index_put},
};

}  // namespace

std::span<const RuleEntry> index_rules() { return kIndexRules; }

}  // namespace heterog::graph

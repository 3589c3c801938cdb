// Split rules of views and of operators that move, cut or pad one operand.
#include <optional>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

constexpr std::int64_t kToTheEnd = INT64_MAX;

// The product of the sizes before `dim`, times `factor`; none if one of them depends on the batch,
// is zero, or is out of all bounds.
std::optional<std::int64_t> elements_before(std::span<const Affine> shape, std::size_t dim,
                                            std::int64_t factor) {
  for (std::size_t i = 0; i < dim; ++i) {
    if (!shape[i].constant() || shape[i].c <= 0 || factor > kToTheEnd / shape[i].c) return {};
    factor *= shape[i].c;
  }
  return factor;
}

// The dimension of `shape` that the batch is cut along if `before` elements lie outside of it: in
// the row-major order of the elements, before × B × after. That is all that a reshape keeps, and it
// says everything about which elements belong to a slice.
std::optional<SplitRule> rule_at(std::span<const Affine> shape, std::int64_t before,
                                 SplitKind kind) {
  const auto dim = batch_dim(shape);
  if (!dim) return std::nullopt;
  const auto outside = elements_before(shape, *dim, 1);
  if (!outside || before % *outside != 0) return std::nullopt;
  const std::int64_t outer = before / *outside;
  if (outer == 0 || shape[*dim].a % outer != 0) return std::nullopt;
  return SplitRule{kind, static_cast<std::uint8_t>(*dim), outer};
}

// A value that every slice has in full size passes through any reshape, linear as it is.
bool unsliced(const Operand& operand) { return !has_batch(operand.shape); }

Reason view(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  if (unsliced(*x)) {
    op.set_output(0, x->rule);
    return {};
  }
  const auto before = elements_before(x->shape, x->rule.dim, x->rule.outer);
  const auto rule =
      before ? rule_at(op.output_shape(0), *before, x->rule.kind) : std::optional<SplitRule>();
  if (!rule) return kNoBatchDim;
  // Numbers of rows go on being that only where the rows stay whole.
  if (x->rows() && op.output_shape(0)[rule->dim] != x->shape[x->rule.dim]) return kReadsLocal;
  op.set_output(0, *rule);
  return {};
}

// The operand's rule with its dimension moved to `dim`.
SplitRule moved(const Operand& x, std::size_t dim) {
  SplitRule rule = x.rule;
  if (!unsliced(x)) rule.dim = static_cast<std::uint8_t>(dim);
  return rule;
}

Reason permute(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto order = op.integers(1, "dims");
  if (!x || !order || order->size() != x->shape.size()) return kUnusualArguments;
  for (std::size_t i = 0; i < order->size(); ++i) {
    if (wrap_dim((*order)[i], x->shape.size()) == x->rule.dim) {
      op.set_output(0, moved(*x, i));
      return {};
    }
  }
  op.set_output(0, x->rule);  // no dimensions at all
  return {};
}

Reason exchange(RuleContext& op, std::size_t a, std::size_t b) {
  Operand* x = op.operand(0);
  const std::size_t dim = x->rule.dim;
  op.set_output(0, moved(*x, dim == a ? b : dim == b ? a : dim));
  return {};
}

Reason transpose(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto a = op.integer(1, "dim0"), b = op.integer(2, "dim1");
  if (!x || !a || !b) return kUnusualArguments;
  return exchange(op, wrap_dim(*a, x->shape.size()), wrap_dim(*b, x->shape.size()));
}

Reason matrix_transpose(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  return x->shape.size() == 2 ? exchange(op, 0, 1) : exchange(op, 0, 0);
}

Reason unsqueeze(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto at = op.integer(1, "dim");
  if (!x || !at) return kUnusualArguments;
  const std::size_t place = wrap_dim(*at, x->shape.size() + 1);
  op.set_output(0, moved(*x, x->rule.dim + (x->rule.dim >= place ? 1 : 0)));
  return {};
}

Reason squeeze(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto dims = op.integers(1, "dim");
  if (!x || !dims) return kUnusualArguments;
  std::size_t removed_before = 0;
  for (std::int64_t each : *dims) {
    const std::size_t dim = wrap_dim(each, x->shape.size());
    // A slice of one sample would lose its batch dimension.
    if (!unsliced(*x) && dim == x->rule.dim) return kAcrossBatch;
    if (dim < x->rule.dim && x->shape[dim] == Affine{0, 1}) ++removed_before;
  }
  op.set_output(0, moved(*x, x->rule.dim - removed_before));
  return {};
}

// expand, repeat: a dimension that gets as long as the batch holds the same value for each sample.
SplitRule widened(const Operand& x, std::span<const Affine> out) {
  if (!unsliced(x)) return moved(x, x.rule.dim + (out.size() - x.shape.size()));
  const auto dim = batch_dim(out);
  return dim ? concat_rule(*dim) : x.rule;
}

Reason expand(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  if (has_batch(op.output_shape(0))) {
    if (x->local() && unsliced(*x)) return kReadsLocal;
    reduce(*x);
  }
  op.set_output(0, widened(*x, op.output_shape(0)));
  return {};
}

// The factor of dimension `dim` of the result is the batch, and no other depends on it.
bool repeats_by_batch(const Value& times, const Operand& x, std::span<const Affine> out,
                      std::size_t dim) {
  if (times.items.size() != out.size() || x.shape.size() > out.size()) return false;
  const std::size_t shift = out.size() - x.shape.size();
  const std::int64_t rows = dim < shift ? 1 : x.shape[dim - shift].c;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Value& item = times.items[i];
    if (i == dim) {
      if (item.kind != Value::Kind::kSize || item.integer.c != 0 || rows <= 0 ||
          out[i].a % rows != 0 || item.integer.a != out[i].a / rows) {
        return false;
      }
    } else if (item.kind != Value::Kind::kInt) {
      return false;
    }
  }
  return true;
}

Reason repeat(RuleContext& op) {
  Operand* x = op.operand(0);
  const Value* times = op.argument(1, "repeats");
  if (!x || !times || x->local()) return kUnusualArguments;
  if (has_batch(op.output_shape(0))) reduce(*x);
  SplitRule rule = widened(*x, op.output_shape(0));
  if (!x->sliced() && has_batch(op.output_shape(0))) {
    if (!repeats_by_batch(*times, *x, op.output_shape(0), rule.dim)) return kAcrossBatch;
    op.follows(1);
  }
  if (x->sliced()) {
    if (rule.dim >= times->items.size() || rule.dim >= op.output_shape(0).size()) {
      return kUnusualArguments;
    }
    const Value& factor = times->items[rule.dim];
    const std::int64_t most = x->shape[x->rule.dim].a;
    if (factor.kind != Value::Kind::kInt || factor.integer.c < 1 ||
        op.output_shape(0)[rule.dim].a / most != factor.integer.c) {
      return kAcrossBatch;
    }
    rule.outer *= factor.integer.c;
  }
  op.set_output(0, rule);
  return {};
}

// select(x, dim, index), unbind(x, dim): the dimension goes.
Reason take_out(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  const std::size_t dim = wrap_dim(op.integer(1, "dim").value_or(0), x->shape.size());
  if (!unsliced(*x) && dim == x->rule.dim) return kAcrossBatch;
  op.set_outputs(moved(*x, x->rule.dim - (dim < x->rule.dim ? 1 : 0)));
  return {};
}

// One end of a cut, or none if it is not an affine number that a slice can follow.
std::optional<Affine> bound(const Value* value, Affine otherwise, Affine size) {
  if (!value) return otherwise;
  if (value->kind != Value::Kind::kInt && value->kind != Value::Kind::kSize) return std::nullopt;
  if (value->integer == Affine{0, kToTheEnd} || value->integer == size) return size;
  return value->integer;
}

// slice(x, dim, start, end, step). Along the batch only at multiples of a whole batch, which are
// cuts of the outer factor; along another dimension only at places that do not depend on it.
Reason slice(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  const std::size_t dim = wrap_dim(op.integer(1, "dim").value_or(0), x->shape.size());
  SplitRule rule = x->rule;
  if (!unsliced(*x) && dim == rule.dim) {
    const Affine size = x->shape[dim];
    const std::int64_t rest = size.a / rule.outer;
    const auto start = bound(op.argument(2, "start"), Affine{0, 0}, size);
    const auto end = bound(op.argument(3, "end"), size, size);
    if (!start || !end || start->c != 0 || end->c != 0 || op.integer(4, "step").value_or(1) != 1 ||
        start->a % rest != 0 || end->a % rest != 0 || start->a < 0 || end->a <= start->a ||
        end->a > size.a) {
      return kAcrossBatch;
    }
    op.follows(2);
    op.follows(3);
    rule.outer = (end->a - start->a) / rest;
  }
  op.set_output(0, rule);
  return {};
}

// split(x, size, dim), split_with_sizes(x, sizes, dim), chunk(x, n, dim).
Reason split(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x) return kUnusualArguments;
  const std::size_t dim = wrap_dim(op.integer(2, "dim").value_or(0), x->shape.size());
  op.set_outputs(x->rule);
  if (unsliced(*x) || dim != x->rule.dim) return {};
  // As many rows in each part as the arguments say, a number for all or one for each.
  const Value* sizes = op.argument(1, "split_size");
  if (!sizes) return kUnusualArguments;
  const std::int64_t rest = x->shape[dim].a / x->rule.outer;
  for (std::size_t i = 0; i < op.output_count(); ++i) {
    if (op.output_shape(i).size() <= dim) return kAcrossBatch;  // a part that nobody reads
    const Affine size = op.output_shape(i)[dim];
    if (size.c != 0 || size.a == 0 || size.a % rest != 0) return kAcrossBatch;
    const bool each = sizes->kind == Value::Kind::kList;
    if (each && i >= sizes->items.size()) return kUnusualArguments;
    const Value& said = each ? sizes->items[i] : *sizes;
    const bool last = !each && i + 1 == op.output_count();  // what is left over
    if (said.kind != Value::Kind::kSize || said.integer.c != 0 || said.integer.a < size.a ||
        (said.integer.a != size.a && !last)) {
      return kAcrossBatch;
    }
    op.set_output(i, {x->rule.kind, x->rule.dim, size.a / rest});
  }
  op.follows(1);
  return {};
}

// select_backward, slice_backward(grad, sizes, dim, …): zeros around the gradient.
Reason put_back(RuleContext& op) {
  Operand* grad = op.operand(0);
  const bool select = op.trait() != 0;
  const auto at = op.integer(2, "dim");
  if (!grad || !at || grad->local()) return kUnusualArguments;
  const std::size_t dim = wrap_dim(*at, op.output_shape(0).size());
  std::size_t place = grad->rule.dim;
  if (select && place >= dim) ++place;
  if (!unsliced(*grad) && place == dim) return kAcrossBatch;
  op.set_output(0, moved(*grad, place));
  return {};
}

// Operators that leave the batch alone as long as `dims` (argument `trait`, negative ones count
// from the end) do not name it: flip, roll.
Reason along_dims(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto dims = op.integers(op.trait(), "dims");
  if (!x || !dims || dims->empty()) return kUnusualArguments;
  for (std::int64_t each : *dims) {
    if (!unsliced(*x) && wrap_dim(each, x->shape.size()) == x->rule.dim) return kAcrossBatch;
  }
  op.set_output(0, x->rule);
  return {};
}

// constant_pad_nd(x, pad, value): pairs of pads, from the last dimension backwards.
Reason pad(RuleContext& op) {
  Operand* x = op.operand(0);
  const auto pads = op.integers(1, "pad");
  const Value* value = op.argument(2, "value");
  if (!x || !pads || x->local()) return kUnusualArguments;
  const bool zero = !value || (value->kind == Value::Kind::kInt && value->integer.c == 0) ||
                    (value->kind == Value::Kind::kFloat && value->number == 0);
  if (x->rule.kind == SplitKind::kSum && !zero) reduce(*x);
  const std::size_t from_end = x->shape.size() - 1 - x->rule.dim;
  if (x->sliced() && 2 * from_end < pads->size()) {
    if ((*pads)[2 * from_end] != 0) return kAcrossBatch;
    if (2 * from_end + 1 < pads->size() && (*pads)[2 * from_end + 1] != 0) return kAcrossBatch;
  }
  op.set_output(0, x->rule);
  return {};
}

// tril, triu, pixel_shuffle and the like: linear in x, and work on its last `trait` dimensions.
Reason last_dims(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || x->local()) return kUnusualArguments;
  if (!unsliced(*x) && x->rule.dim + op.trait() >= x->shape.size()) return kAcrossBatch;
  op.set_output(0, x->rule);
  return {};
}

// as_strided, as_strided_scatter: strides count elements of the whole.
Reason strided(RuleContext& op) {
  const auto operands = op.operands();
  if (operands.empty()) return kUnusualArguments;
  if (any_local(operands)) return kReadsLocal;
  if (any_sliced(operands) || has_batch(op.output_shape(0))) return kAcrossBatch;
  reduce_all(operands);
  op.set_output(0, kSameRule);
  return {};
}

constexpr RuleEntry kShapeRules[] = {
    {"aten.view.default", view, 0, 1},
    {"aten._unsafe_view.default", view, 0, 1},
    {"aten.reshape.default", view, 0, 1},
    {"aten.permute.default", permute},
    {"aten.transpose.int", transpose},
    {"aten.t.default", matrix_transpose},
    {"aten.unsqueeze.default", unsqueeze},
    {"aten.squeeze.dim", squeeze},
    {"aten.squeeze.dims", squeeze},
    {"aten.expand.default", expand, 0, 1},
    {"aten.repeat.default", repeat},
    {"aten.select.int", take_out},
    {"aten.unbind.int", take_out},
    {"aten.slice.Tensor", slice},
    {"aten.split.Tensor", split},
    {"aten.split_with_sizes.default", split},
    {"aten.select_backward.default", put_back, 1, 1},
    {"aten.slice_backward.default", put_back, 0, 1},
    {"aten.flip.default", along_dims, 1},
    {"aten.roll.default", along_dims, 2},
    {"aten.as_strided.default", strided},
    {"aten.as_strided_scatter.default", strided},
    {"aten.constant_pad_nd.default", pad},
    {"aten.tril.default", last_dims, 2},
    {"aten.triu.default", last_dims, 2},
    {"aten.pixel_shuffle.default", last_dims, 3},
    {"aten.pixel_unshuffle.default", last_dims, 3},
};

}  // namespace

std::span<const RuleEntry> shape_rules() { return kShapeRules; }

}  // namespace heterog::graph

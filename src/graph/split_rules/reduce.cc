// Split rules of reductions and of operators that run along some dimensions.
#include <algorithm>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// What a reduction over the batch gives.
enum Over : std::uint8_t {
  kNothing,  // nothing that slices can be put together from
  kTotal,    // a sum; linear
  kAverage,  // a mean; linear
};

// The dimensions that argument `index` names; all of them if it is absent or empty.
bool reduces(RuleContext& op, std::size_t index, std::size_t dim, std::size_t rank) {
  const auto dims = op.integers(index, "dim");
  if (!dims || dims->empty()) return true;
  return std::ranges::any_of(*dims, [&](std::int64_t each) { return wrap_dim(each, rank) == dim; });
}

Reason reduce_dims(RuleContext& op, std::size_t dims_argument, Over over) {
  Operand* x = op.operand(0);
  if (!x || op.operands().size() != 1) return kUnusualArguments;
  if (x->local()) return kReadsLocal;
  if (!x->sliced()) {
    if (over == kNothing) reduce(*x);
    op.set_outputs(x->rule);
    return {};
  }
  const std::size_t rank = x->shape.size();
  const std::size_t dim = x->rule.dim;
  if (reduces(op, dims_argument, dim, rank)) {
    if (over == kNothing) return kAcrossBatch;
    op.set_outputs(over == kTotal ? kSumRule : kMeanRule);
    return {};
  }
  std::size_t gone = 0;
  if (op.output_shape(0).size() < rank) {
    for (std::size_t i = 0; i < dim; ++i) gone += reduces(op, dims_argument, i, rank) ? 1 : 0;
  }
  op.set_outputs(concat_rule(dim - gone, x->rule.outer));
  return {};
}

// sum(x, dims, keepdim) and its kind; without dims: all.
Reason reduction(RuleContext& op) { return reduce_dims(op, 1, static_cast<Over>(op.trait())); }
// linalg_vector_norm(x, order, dims, keepdim).
Reason norm(RuleContext& op) { return reduce_dims(op, 2, kNothing); }

// Operators that run along dimension `dim` (argument `place`) of operands that are cut alike.
Reason along(RuleContext& op, std::size_t place) {
  const auto operands = op.operands();
  if (operands.empty() || any_local(operands)) return kReadsLocal;
  reduce_all(operands);
  const Sliced sliced = broadcast_slices(operands, op.output_shape(0));
  if (!sliced.reason.empty()) return sliced.reason;
  const std::size_t rank = op.output_shape(0).size();
  if (sliced.rule.kind == SplitKind::kConcat &&
      wrap_dim(op.integer(place, "dim").value_or(-1), rank) == sliced.rule.dim) {
    return kAcrossBatch;
  }
  op.set_outputs(sliced.rule);
  return {};
}

// softmax(x, dim, …), topk(x, k, dim), softmax_backward(grad, out, dim, …): `trait` is the place.
Reason along_dim(RuleContext& op) { return along(op, op.trait()); }

// cumsum(x, dim): also linear.
Reason scan(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || !x->partial()) return along(op, 1);
  op.set_output(0, x->rule);
  return {};
}

constexpr RuleEntry kReduceRules[] = {
    {"aten.sum.default", reduction, kTotal},
    {"aten.sum.dim_IntList", reduction, kTotal},
    {"aten.mean.default", reduction, kAverage},
    {"aten.mean.dim", reduction, kAverage},
    {"aten.amax.default", reduction, kNothing},
    {"aten.amin.default", reduction, kNothing},
    {"aten.argmax.default", reduction, kNothing},
    {"aten.any.default", reduction, kNothing},
    {"aten.any.dim", reduction, kNothing},
    {"aten.all.default", reduction, kNothing},
    {"aten.max.default", reduction, kNothing},
    {"aten.max.dim", reduction, kNothing},
    {"aten.min.dim", reduction, kNothing},
    {"aten.prod.dim_int", reduction, kNothing},
    {"aten.logsumexp.default", reduction, kNothing},
    {"aten.var.correction", reduction, kNothing},
    {"aten.var_mean.correction", reduction, kNothing},
    {"aten.linalg_vector_norm.default", norm},
    {"aten.norm.ScalarOpt_dim", norm},
    {"aten._softmax.default", along_dim, 1},
    {"aten._safe_softmax.default", along_dim, 1},
    {"aten._log_softmax.default", along_dim, 1},
    {"aten._softmax_backward_data.default", along_dim, 2},
    {"aten._log_softmax_backward_data.default", along_dim, 2},
    {"aten.glu.default", along_dim, 1},
    {"aten.topk.default", along_dim, 2},
    {"aten.sort.default", along_dim, 1},
    {"aten.cumsum.default", scan},
};

}  // namespace

std::span<const RuleEntry> reduce_rules() { return kReduceRules; }

}  // namespace heterog::graph

// Split rules of products: the matrix products and the convolutions.
#include <array>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

// A product of two tensors, a letter for each dimension: mm is ik,kj->ij.
struct Contraction {
  std::string_view a, b, out;
};
constexpr Contraction kMm{"ik", "kj", "ij"};
constexpr Contraction kBmm{"nik", "nkj", "nij"};
constexpr Contraction kMv{"ik", "k", "i"};
constexpr Contraction kDot{"k", "k", ""};

struct Product {
  SplitRule rule = kSameRule;
  Reason reason;
};

Product contract(Operand& a, Operand& b, const Contraction& letters) {
  if (a.local() || b.local()) return {.reason = kReadsLocal};
  if (a.shape.size() != letters.a.size() || b.shape.size() != letters.b.size()) {
    return {.reason = kUnusualArguments};
  }
  if (!a.sliced() && !b.sliced()) {
    if (a.partial() && b.partial()) {
      reduce(a);
      reduce(b);
    }
    return {.rule = partial_rule(a.partial() ? a.rule.kind : b.rule.kind)};
  }
  reduce(a);
  reduce(b);
  const char letter_a = a.sliced() ? letters.a[a.rule.dim] : '\0';
  const char letter_b = b.sliced() ? letters.b[b.rule.dim] : '\0';
  const char letter = letter_a ? letter_a : letter_b;
  const std::int64_t outer = a.sliced() ? a.rule.outer : b.rule.outer;
  if (letter_a && letter_b && (letter_a != letter_b || a.rule.outer != b.rule.outer)) {
    return {.reason = kCutApart};
  }
  // A whole operand with the sliced letter would have to be cut as well.
  if (!letter_a && letters.a.find(letter) != std::string_view::npos) return {.reason = kCutApart};
  if (!letter_b && letters.b.find(letter) != std::string_view::npos) return {.reason = kCutApart};
  const std::size_t place = letters.out.find(letter);
  if (place == std::string_view::npos) return {.rule = kSumRule};
  return {.rule = concat_rule(place, outer)};
}

const Contraction& contraction(std::uint8_t trait) {
  static constexpr std::array kAll = {kMm, kBmm, kMv, kDot};
  return kAll[trait];
}
enum Letters : std::uint8_t { kMmLetters, kBmmLetters, kMvLetters, kDotLetters };

Reason matrix_product(RuleContext& op) {
  Operand* a = op.operand(0);
  Operand* b = op.operand(1);
  if (!a || !b) return kUnusualArguments;
  const Product product = contract(*a, *b, contraction(op.trait()));
  op.set_output(0, product.rule);
  return product.reason;
}

// addend + product, as addmm computes it.
Reason add_to_product(Operand& addend, SplitRule product, RuleContext& op) {
  if (addend.local()) return kReadsLocal;
  switch (product.kind) {
    case SplitKind::kConcat: {
      reduce(addend);
      Operand result{.tensor = {}, .rule = product, .shape = op.output_shape(0), .use = {}};
      const std::array both = {addend, result};
      const Sliced sliced = broadcast_slices(both, op.output_shape(0));
      op.set_output(0, sliced.rule);
      return sliced.reason;
    }
    case SplitKind::kSum:
    case SplitKind::kMean:
      if (addend.sliced()) return kCutApart;
      if (addend.rule.kind != product.kind) reduce(addend);
      if (addend.same() && product.kind == SplitKind::kSum) {
        // Also of a reduced addend, which every instance then has whole.
        if (addend.use == OperandUse::kReduced) return kCutApart;
        addend.use = OperandUse::kOnce;
      }
      op.set_output(0, product);
      return {};
    default:
      if (addend.sliced()) return kCutApart;
      reduce(addend);
      op.set_output(0, kSameRule);
      return {};
  }
}

Reason matrix_product_add(RuleContext& op) {
  Operand* addend = op.operand(0);
  Operand* a = op.operand(1);
  Operand* b = op.operand(2);
  if (!addend || !a || !b) return kUnusualArguments;
  const Product product = contract(*a, *b, contraction(op.trait()));
  if (!product.reason.empty()) return product.reason;
  return add_to_product(*addend, product.rule, op);
}

// convolution(input, weight, bias, …): input [N, C, …], sliced along N only.
Reason convolution(RuleContext& op) {
  Operand* input = op.operand(0);
  if (!input || any_local(op.operands())) return kUnusualArguments;
  reduce_all(op.operands());
  for (const Operand& operand : op.operands()) {
    if (operand.sliced() && (&operand != input || operand.rule.dim != 0)) return kCutApart;
  }
  if (input->sliced() && op.output_shape(0).size() != input->shape.size()) return kNoBatchDim;
  op.set_output(0, input->rule);
  return {};
}

// convolution_backward(grad, input, weight, …) → gradients of input, weight, bias.
Reason convolution_backward(RuleContext& op) {
  Operand* grad = op.operand(0);
  Operand* input = op.operand(1);
  Operand* weight = op.operand(2);
  if (!grad || !input || !weight || any_local(op.operands())) return kUnusualArguments;
  reduce_all(op.operands());
  if (weight->sliced() || !cut_alike(*grad, *input)) return kCutApart;
  if (grad->sliced() && grad->rule.dim != 0) return kCutApart;
  op.set_output(0, grad->rule);
  op.set_output(1, grad->sliced() ? kSumRule : kSameRule);
  op.set_output(2, grad->sliced() ? kSumRule : kSameRule);
  return {};
}

// linear4bit(x [N, …, in], packed, scales, out): the packed weight is read whole, whatever rows of
// x there are.
Reason packed_product(RuleContext& op) {
  Operand* x = op.operand(0);
  if (!x || any_local(op.operands())) return kUnusualArguments;
  reduce_all(op.operands());
  for (const Operand& operand : op.operands()) {
    if (operand.sliced() && (&operand != x || operand.rule.dim + 1u >= x->shape.size())) {
      return kCutApart;
    }
  }
  op.set_output(0, x->rule);
  return {};
}

constexpr RuleEntry kLinearRules[] = {
    {"heterog.linear4bit.default", packed_product},
    {"heterog.linear4bit_backward.default", packed_product},
    {"aten.mm.default", matrix_product, kMmLetters},
    {"aten.bmm.default", matrix_product, kBmmLetters},
    {"aten.mv.default", matrix_product, kMvLetters},
    {"aten.dot.default", matrix_product, kDotLetters},
    {"aten.addmm.default", matrix_product_add, kMmLetters},
    {"aten.baddbmm.default", matrix_product_add, kBmmLetters},
    {"aten.addmv.default", matrix_product_add, kMvLetters},
    {"aten.convolution.default", convolution},
    {"aten.convolution_backward.default", convolution_backward},
};

}  // namespace

std::span<const RuleEntry> linear_rules() { return kLinearRules; }

}  // namespace heterog::graph

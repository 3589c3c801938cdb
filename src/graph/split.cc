// The walk of the batch-split analysis: what each op does when it runs on a slice of the batch.
#include "graph/split.h"

#include <vector>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

constexpr Reason kNoRule = "the table has no rule for this operator";
constexpr Reason kNotCuttable = "reads a value that cannot be cut into whole samples";
constexpr Reason kBadResult = "the sizes of its result do not follow the batch as the rule says";
constexpr Reason kReadWhole = "a consumer needs it for the whole batch";

SplitRule source_rule(std::span<const Affine> shape) {
  if (!has_batch(shape)) return kSameRule;
  const auto dim = batch_dim(shape);
  return dim ? concat_rule(*dim) : SplitRule{};
}

// How an op on a slice may see a tensor: slices of what a whole op made are cut out of it.
SplitRule seen_rule(const SplitRule& rule, std::span<const Affine> shape) {
  return rule.kind == SplitKind::kWhole ? source_rule(shape) : rule;
}

OperandUse use_of(const Operand& operand) {
  if (operand.use) return *operand.use;
  switch (operand.rule.kind) {
    case SplitKind::kConcat:
      return OperandUse::kSlice;
    case SplitKind::kSame:
      return OperandUse::kSame;
    case SplitKind::kSum:
    case SplitKind::kMean:
      return OperandUse::kPartial;
    case SplitKind::kLocal:
      return OperandUse::kLocal;
    case SplitKind::kWhole:
      break;
  }
  return OperandUse::kWhole;
}

// A rule must agree with the sizes of its tensor, whatever a table says.
bool agrees(const SplitRule& rule, std::span<const Affine> shape) {
  switch (rule.kind) {
    case SplitKind::kConcat: {
      const auto dim = batch_dim(shape);
      return dim && *dim == rule.dim && rule.outer > 0 && shape[rule.dim].a % rule.outer == 0;
    }
    case SplitKind::kLocal:
      return true;
    case SplitKind::kWhole:
      return false;
    default:
      return !has_batch(shape);
  }
}

class Walk {
 public:
  explicit Walk(const ModelGraph& graph)
      : graph_(graph), context_(graph), entries_(graph.type_count()), forced_(graph.op_count()) {
    for (OpTypeId type : id_range<OpTypeId>(graph.type_count())) {
      entries_[type] = find_rule(graph.type_name(type));
    }
  }

  // A local value that a whole op reads makes its producers whole as well, and what they decided
  // for others void: the walk starts again. Each time more ops are forced, so it ends.
  SplitAnalysis run() {
    do {
      again_ = false;
      start();
      for (OpId op : graph_.op_ids()) visit(op);
    } while (again_);
    return std::move(result_);
  }

 private:
  void start() {
    result_ = {};
    result_.rules.resize(graph_.tensor_count());
    result_.sliceable.assign(graph_.op_count(), 0);
    result_.reason.resize(graph_.op_count());
    for (TensorId id : graph_.tensor_ids()) {
      if (!graph_.tensor(id).producer.valid()) result_.rules[id] = source_rule(graph_.shape(id));
    }
  }

  void visit(OpId op) {
    const Reason reason = forced_[op] ? kReadWhole : apply_rule(op);
    result_.reason[op] = reason;
    result_.sliceable[op] = reason.empty() ? 1 : 0;
    if (reason.empty()) {
      const auto outputs = graph_.outputs(op);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].valid()) result_.rules[outputs[i]] = context_.output_rules()[i];
      }
      for (const Operand& operand : context_.operands()) result_.uses.push(use_of(operand));
    } else {
      for (TensorId input : graph_.inputs(op)) {
        result_.uses.push(OperandUse::kWhole);
        if (result_.rules[input].kind == SplitKind::kLocal) force(graph_.tensor(input).producer);
      }
    }
    result_.uses.end_row();
  }

  Reason apply_rule(OpId op) {
    const RuleEntry* entry = entries_[graph_.op(op).type];
    if (!entry) return kNoRule;
    context_.start(op, entry->trait);
    for (Operand& operand : context_.operands()) {
      operand.rule = seen_rule(result_.rules[operand.tensor], operand.shape);
      if (operand.rule.kind == SplitKind::kWhole) return kNotCuttable;
    }
    // Gradients are aggregated before the update reads them.
    if (graph_.op(op).phase == Phase::kUpdate) reduce_all(context_.operands());
    const Reason reason = entry->function(context_);
    if (!reason.empty()) return reason;
    const auto outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].valid() && !agrees(context_.output_rules()[i], graph_.shape(outputs[i]))) {
        return kBadResult;
      }
    }
    return {};
  }

  void force(OpId op) {
    if (!forced_[op]) again_ = true;
    forced_[op] = 1;
  }

  const ModelGraph& graph_;
  RuleContext context_;
  IdVector<OpTypeId, const RuleEntry*> entries_;
  IdVector<OpId, std::uint8_t> forced_;
  SplitAnalysis result_;
  bool again_ = false;
};

}  // namespace

std::string_view split_kind_name(SplitKind kind) {
  switch (kind) {
    case SplitKind::kConcat:
      return "concat";
    case SplitKind::kSum:
      return "sum";
    case SplitKind::kMean:
      return "mean";
    case SplitKind::kSame:
      return "same";
    case SplitKind::kLocal:
      return "local";
    case SplitKind::kWhole:
      break;
  }
  return "whole";
}

SplitAnalysis analyze_splits(const ModelGraph& graph) { return Walk(graph).run(); }

bool has_split_rule(std::string_view type) { return find_rule(type) != nullptr; }

SplitRule seen_rule(const ModelGraph& graph, const SplitAnalysis& splits, TensorId tensor) {
  const SplitRule rule = splits.rules[tensor];
  if (rule.kind != SplitKind::kWhole) return rule;
  const auto shape = graph.shape(tensor);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].constant()) return {SplitKind::kConcat, static_cast<std::uint8_t>(i), 1};
  }
  return {SplitKind::kSame, 0, 1};
}

}  // namespace heterog::graph

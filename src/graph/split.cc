// The walk of the batch-split analysis: what each op does when it runs on a slice of the batch.
#include "graph/split.h"

#include <algorithm>
#include <vector>

#include "graph/split_rules.h"

namespace heterog::graph {
namespace {

constexpr Reason kNoRule = "the table has no rule for this operator";
constexpr Reason kNotCuttable = "reads a value that cannot be cut into whole samples";
constexpr Reason kBadResult = "the sizes of its result do not follow the batch as the rule says";
constexpr Reason kReadWhole = "a consumer needs it for the whole batch";
constexpr Reason kNotFollowed = "an argument depends on the batch, and not as its slices do";

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
    case SplitKind::kLocal:  // of rows, or of statistics
      return !has_batch(shape) || (batch_dim(shape) == rule.dim && rule.outer == 1);
    case SplitKind::kWhole:
      return false;
    default:
      return !has_batch(shape);
  }
}

// Partial sums and means of numbers that were rounded on the way are not those of the whole.
bool adds_up(const SplitRule& rule, DType out, std::span<const Operand> operands,
             const ModelGraph& graph) {
  if (rule.kind != SplitKind::kSum && rule.kind != SplitKind::kMean) return true;
  if (is_floating(out)) return true;
  if (rule.kind == SplitKind::kMean) return false;
  for (const Operand& operand : operands) {
    const bool partial = use_of(operand) == OperandUse::kPartial;
    if (partial && is_floating(graph.tensor(operand.tensor).dtype)) return false;
  }
  return true;
}

// A number that an op on a slice takes from the slice's own count of samples.
bool depends_on_slice(const Value& value) {
  if (value.kind == Value::Kind::kSize) return !value.integer.constant();
  return std::ranges::any_of(value.items, depends_on_slice);
}

// Numbers of the whole batch enter arithmetic alone, where they stand by themselves.
bool lists_scalars(const Value& value) {
  return std::ranges::any_of(value.items, [](const Value& item) {
    return item.kind == Value::Kind::kScalar || item.kind == Value::Kind::kReciprocal ||
           lists_scalars(item);
  });
}

// The sizes of a result that is made with `rule`: the batch where it is cut, and nowhere else. -1
// stands for what is left over.
bool sizes_follow(const Value& sizes, const SplitRule& rule, std::span<const Affine> shape) {
  if (sizes.kind != Value::Kind::kList || sizes.items.size() != shape.size()) return false;
  const bool cut = has_batch(shape);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Value& item = sizes.items[i];
    const bool left_over = item.kind == Value::Kind::kInt && item.integer.c == -1;
    if (cut && i == rule.dim) {
      const bool rows = item.kind == Value::Kind::kSize && item.integer == shape[i];
      if (!rows && !left_over) return false;
    } else if (item.kind != Value::Kind::kInt && item.kind != Value::Kind::kSize) {
      return false;
    } else if (!item.integer.constant()) {
      return false;
    }
  }
  return true;
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
    if (context_.unusual()) return kUnusualArguments;
    const auto outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].valid()) continue;
      const SplitRule& rule = context_.output_rules()[i];
      if (!agrees(rule, graph_.shape(outputs[i])) ||
          !adds_up(rule, graph_.tensor(outputs[i]).dtype, context_.operands(), graph_)) {
        return kBadResult;
      }
    }
    return check_arguments(op, *entry);
  }

  // An argument that depends on the batch takes the count of the slice. That is right where the
  // rule says so, and nowhere else: a row number, say, means another row on every slice.
  Reason check_arguments(OpId op, const RuleEntry& entry) const {
    const auto args = graph_.args(op);
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (i == entry.sizes) {
        if (!sizes_follow(args[i], context_.output_rules()[0], context_.output_shape(0))) {
          return kNotFollowed;
        }
      } else if (!context_.followed(i)) {
        if (depends_on_slice(args[i])) return kNotFollowed;
        if (lists_scalars(args[i])) return kUnusualArguments;
      }
    }
    for (const auto& [key, value] : graph_.kwargs(op)) {
      if (depends_on_slice(value)) return kNotFollowed;
      if (lists_scalars(value)) return kUnusualArguments;
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

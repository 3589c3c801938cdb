// The parts that split rules are made of, and the look-up of a rule by its operator.
#include "graph/split_rules.h"

#include <array>
#include <unordered_map>

namespace heterog::graph {
namespace {

std::uint32_t count_tensors(const Value& value) {
  if (value.kind == Value::Kind::kTensor) return 1;
  std::uint32_t count = 0;
  if (value.kind == Value::Kind::kList) {
    for (const Value& item : value.items) count += count_tensors(item);
  }
  return count;
}

std::array<std::span<const RuleEntry>, 9> tables() {
  return {pointwise_rules(), linear_rules(), shape_rules(), join_rules(), create_rules(),
          reduce_rules(),    index_rules(),  loss_rules(),  nn_rules()};
}

}  // namespace

bool Operand::rows() const { return local() && has_batch(shape); }

void RuleContext::start(OpId op, std::uint8_t trait) {
  op_ = op;
  trait_ = trait;
  followed_ = 0;
  unusual_ = false;
  operands_.clear();
  for (TensorId id : graph_->inputs(op)) {
    operands_.push_back({.tensor = id, .rule = kSameRule, .shape = graph_->shape(id), .use = {}});
  }
  first_operand_.clear();
  std::uint32_t next = 0;
  for (const Value& value : graph_->args(op)) {
    first_operand_.push_back(next);
    next += count_tensors(value);
  }
  first_operand_.push_back(next);
  outputs_.assign(graph_->outputs(op).size(), SplitRule{});
}

Operand* RuleContext::operand(std::size_t index) {
  const auto args = graph_->args(op_);
  if (index >= args.size() || args[index].kind != Value::Kind::kTensor) return nullptr;
  return &operands_[first_operand_[index]];
}

std::span<Operand> RuleContext::operand_list(std::size_t index) {
  if (index + 1 >= first_operand_.size()) return {};
  return std::span(operands_).subspan(first_operand_[index],
                                      first_operand_[index + 1] - first_operand_[index]);
}

const Value* RuleContext::argument(std::size_t index, std::string_view name) const {
  const auto args = graph_->args(op_);
  if (index < args.size()) {
    return args[index].kind == Value::Kind::kNone ? nullptr : &args[index];
  }
  for (const auto& [key, value] : graph_->kwargs(op_)) {
    if (key == name) return value.kind == Value::Kind::kNone ? nullptr : &value;
  }
  return nullptr;
}

std::optional<std::int64_t> RuleContext::integer(std::size_t index, std::string_view name) {
  const Value* value = argument(index, name);
  if (!value) return {};
  if (value->kind != Value::Kind::kInt && value->kind != Value::Kind::kBool) {
    unusual_ = true;
    return {};
  }
  return value->integer.c;
}

bool RuleContext::flag(std::size_t index, std::string_view name) {
  return integer(index, name).value_or(0) != 0;
}

std::optional<std::span<const std::int64_t>> RuleContext::integers(std::size_t index,
                                                                   std::string_view name) {
  const Value* value = argument(index, name);
  if (!value) return {};
  const std::span<const Value> items = value->kind == Value::Kind::kList
                                           ? std::span<const Value>(value->items)
                                           : std::span(value, 1);
  integers_.clear();
  for (const Value& item : items) {
    if (item.kind != Value::Kind::kInt) unusual_ = true;
    integers_.push_back(item.integer.c);
  }
  return integers_;
}

bool RuleContext::has_output(std::size_t index) const {
  return index < outputs_.size() && graph_->outputs(op_)[index].valid();
}

std::span<const Affine> RuleContext::output_shape(std::size_t index) const {
  return has_output(index) ? graph_->shape(graph_->outputs(op_)[index]) : std::span<const Affine>();
}

void RuleContext::set_output(std::size_t index, SplitRule rule) {
  if (index < outputs_.size()) outputs_[index] = rule;
}

void RuleContext::set_outputs(SplitRule rule) {
  for (SplitRule& output : outputs_) output = rule;
}

const RuleEntry* find_rule(std::string_view type) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const RuleEntry*> map;
    for (const auto& table : tables()) {
      for (const RuleEntry& entry : table) {
        ENSURE(map.emplace(entry.type, &entry).second);  // an overload has one rule
      }
    }
    return map;
  }();
  const auto found = index.find(type);
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string_view> rule_types() {
  std::vector<std::string_view> types;
  for (const auto& table : tables()) {
    for (const RuleEntry& entry : table) types.push_back(entry.type);
  }
  return types;
}

SplitRule concat_rule(std::size_t dim, std::int64_t outer) {
  EXPECT(dim < 256);
  return {SplitKind::kConcat, static_cast<std::uint8_t>(dim), outer};
}

std::size_t wrap_dim(std::int64_t dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

bool has_batch(std::span<const Affine> shape) {
  for (const Affine& size : shape) {
    if (!size.constant()) return true;
  }
  return false;
}

std::optional<std::size_t> batch_dim(std::span<const Affine> shape) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].constant()) continue;
    if (found || shape[i].c != 0) return std::nullopt;
    found = i;
  }
  return found;
}

void reduce(Operand& operand) {
  if (!operand.partial()) return;
  operand.rule = kSameRule;
  operand.use = OperandUse::kReduced;
}

void reduce_all(std::span<Operand> operands) {
  for (Operand& operand : operands) reduce(operand);
}

bool any_sliced(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.sliced()) return true;
  }
  return false;
}

bool any_local(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.local()) return true;
  }
  return false;
}

bool any_partial(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.partial()) return true;
  }
  return false;
}

bool cut_alike(const Operand& a, const Operand& b) {
  if (!(a.rule == b.rule)) return false;
  return !a.sliced() || a.shape[a.rule.dim] == b.shape[b.rule.dim];
}

SplitRule join_addends(std::span<Operand* const> addends) {
  bool sums = false, means = false;
  for (const Operand* addend : addends) {
    sums |= addend->rule.kind == SplitKind::kSum;
    means |= addend->rule.kind == SplitKind::kMean;
  }
  if (sums && means) {
    for (Operand* addend : addends) reduce(*addend);
    return kSameRule;
  }
  if (sums) {
    for (Operand* addend : addends) {
      if (!addend->same()) continue;
      EXPECT(!addend->use);  // a reduced one would lose its reduction
      addend->use = OperandUse::kOnce;
    }
    return kSumRule;
  }
  // Shares add up to one: the mean of (x_i + c) is the mean of x_i, plus c.
  return means ? kMeanRule : kSameRule;
}

Sliced broadcast_slices(std::span<const Operand> operands, std::span<const Affine> out) {
  Sliced result;
  Affine rows;
  for (const Operand& operand : operands) {
    if (!operand.sliced()) continue;
    if (operand.shape.size() > out.size()) return {.reason = kUnusualArguments};
    const std::size_t shift = out.size() - operand.shape.size();
    const SplitRule rule = concat_rule(operand.rule.dim + shift, operand.rule.outer);
    const Affine own = operand.shape[operand.rule.dim];
    if (result.rule.kind == SplitKind::kConcat && !(result.rule == rule && rows == own)) {
      return {.reason = kCutApart};
    }
    result.rule = rule;
    rows = own;
  }
  if (result.rule.kind != SplitKind::kConcat) return result;
  for (const Operand& operand : operands) {
    if (operand.sliced() || operand.shape.size() > out.size()) continue;
    const std::size_t shift = out.size() - operand.shape.size();
    if (result.rule.dim >= shift && operand.shape[result.rule.dim - shift] != Affine{0, 1}) {
      return {.reason = kCutApart};
    }
  }
  return result;
}

}  // namespace heterog::graph

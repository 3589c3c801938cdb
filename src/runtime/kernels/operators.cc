// Holds the ops of a graph against the schemas of PyTorch's dispatcher.
#include "runtime/kernels/operators.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "runtime/kernels/dispatcher.h"

namespace heterog::runtime {

using graph::Value;

OperatorName operator_name(std::string_view type) {
  const std::size_t first = type.find('.');
  const std::size_t last = type.rfind('.');
  if (first == type.npos || first == last) return {std::string(type), ""};
  const std::string_view overload = type.substr(last + 1);
  return {std::string(type.substr(0, first)) +
              "::" + std::string(type.substr(first + 1, last - first - 1)),
          overload == "default" ? "" : std::string(overload)};
}

namespace {

// Whether a value can stand for an argument of that type at all. What its tensors are like is for
// the operator to say.
bool fits(const Value& value, c10::TypePtr type) {
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (value.kind == Value::Kind::kNone) return true;
  if (auto list = type->cast<c10::ListType>()) {
    if (value.kind != Value::Kind::kList) return fits(value, list->getElementType());
    return std::all_of(value.items.begin(), value.items.end(),
                       [&](const Value& item) { return fits(item, list->getElementType()); });
  }
  switch (value.kind) {
    case Value::Kind::kList:
      return false;
    case Value::Kind::kTensor:
      return type->kind() == c10::TypeKind::TensorType;
    case Value::Kind::kString:
      return type->kind() == c10::TypeKind::StringType;
    case Value::Kind::kFloat:
    case Value::Kind::kReciprocal:  // none of them is made an integer
      return type->kind() == c10::TypeKind::FloatType ||
             type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::TensorType;
    case Value::Kind::kSymbol:
      return type->kind() != c10::TypeKind::StringType;
    default:
      // A number for a dtype could be one that PyTorch does not have.
      if (type->kind() == c10::TypeKind::ScalarTypeType ||
          type->kind() == c10::TypeKind::LayoutType ||
          type->kind() == c10::TypeKind::MemoryFormatType) {
        return false;
      }
      return type->kind() != c10::TypeKind::StringType;
  }
}

// No more results than the schema's. How long a list of tensors is only the call says.
void check_results(const graph::ModelGraph& graph, OpId op, const c10::FunctionSchema& schema,
                   const std::string& where) {
  const auto& results = schema.returns();
  for (const c10::Argument& result : results) {
    if (result.type()->kind() == c10::TypeKind::ListType) return;
  }
  VALIDATE(graph.outputs(op).size() <= results.size(),
           "{}: outputs: {} given, the operator returns {}", where, graph.outputs(op).size(),
           results.size());
}

// All arguments of the schema, and no others. `where`: the op.
void check_arguments(const graph::ModelGraph& graph, OpId op, const c10::FunctionSchema& schema,
                     const std::string& where) {
  const auto& formal = schema.arguments();
  const auto args = graph.args(op);
  VALIDATE(args.size() <= formal.size(), "{}: args: {} given, the operator takes {}", where,
           args.size(), formal.size());
  std::vector<const Value*> given(formal.size(), nullptr);
  for (std::size_t i = 0; i < args.size(); ++i) given[i] = &args[i];
  for (const auto& [key, value] : graph.kwargs(op)) {
    const auto at = schema.argumentIndexWithName(key);
    VALIDATE(at, "{}: kwargs: the operator has no argument '{}'", where, printable(key));
    VALIDATE(!given[*at], "{}: kwargs: '{}' stands among the args already", where, printable(key));
    given[*at] = &value;
  }
  for (std::size_t i = 0; i < formal.size(); ++i) {
    VALIDATE(given[i] || formal[i].default_value(), "{}: args: '{}' is missing, argument {} of {}",
             where, formal[i].name(), i + 1, formal.size());
    VALIDATE(!given[i] || fits(*given[i], formal[i].real_type()),
             "{}: args: '{}' is of another kind than {}", where, formal[i].name(),
             formal[i].real_type()->str());
  }
}

}  // namespace

void check_operators(const graph::ModelGraph& graph, const std::string& source) {
  std::map<std::string_view, c10::OperatorHandle> known;
  for (OpId op : graph.op_ids()) {
    const std::string_view type = graph.type_name(op);
    auto found = known.find(type);
    if (found == known.end()) {
      const auto handle = find_operator(type);
      VALIDATE(handle,
               "{}: op '{}': PyTorch has no operator {}; export the graph again with this version",
               source, printable(graph.op(op).name), printable(type));
      found = known.emplace(type, *handle).first;
    }
    const std::string where =
        fmt::format("{}: op '{}' ({})", source, printable(graph.op(op).name), type);
    check_arguments(graph, op, found->second.schema(), where);
    check_results(graph, op, found->second.schema(), where);
  }
}

}  // namespace heterog::runtime

// Turns the arguments of a graph's op into those of an ATen operator, and calls it.
#include "runtime/execute.h"

#include <optional>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "runtime/operators.h"

namespace heterog::runtime {
namespace {

using graph::Value;

c10::OperatorHandle find_operator(std::string_view type) {
  const OperatorName name = operator_name(type);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload.c_str());
}

double number_of(const Value& value, Samples samples) {
  switch (value.kind) {
    case Value::Kind::kFloat:
      return value.number;
    case Value::Kind::kScalar:
      return value.number * static_cast<double>(samples.whole) + value.offset;
    case Value::Kind::kReciprocal:
      return value.number / static_cast<double>(value.integer.at(samples.whole));
    case Value::Kind::kSize:
      return static_cast<double>(value.integer.at(samples.slice));
    default:
      return static_cast<double>(value.integer.c);
  }
}

at::Scalar scalar_of(const Value& value, Samples samples) {
  switch (value.kind) {
    case Value::Kind::kBool:
      return value.integer.c != 0;
    case Value::Kind::kInt:
      return value.integer.c;
    case Value::Kind::kSize:
      return value.integer.at(samples.slice);
    default:
      return number_of(value, samples);
  }
}

const std::unordered_map<std::string_view, at::ScalarType>& scalar_types() {
  static const std::unordered_map<std::string_view, at::ScalarType> types = {
      {"float16", at::kHalf},   {"bfloat16", at::kBFloat16}, {"float32", at::kFloat},
      {"float64", at::kDouble}, {"int8", at::kChar},         {"uint8", at::kByte},
      {"int16", at::kShort},    {"int32", at::kInt},         {"int64", at::kLong},
      {"bool", at::kBool}};
  return types;
}

at::ScalarType executed(at::ScalarType type, Floats floats) {
  return floats == Floats::kDouble && at::isFloatingType(type) ? at::kDouble : type;
}

c10::IValue symbol(const std::string& text, const ExecuteOptions& options) {
  static const std::unordered_map<std::string_view, at::MemoryFormat> formats = {
      {"contiguous_format", at::MemoryFormat::Contiguous},
      {"preserve_format", at::MemoryFormat::Preserve},
      {"channels_last", at::MemoryFormat::ChannelsLast},
      {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};
  if (const auto found = scalar_types().find(text); found != scalar_types().end()) {
    return executed(found->second, options.floats);
  }
  if (const auto found = formats.find(text); found != formats.end()) return found->second;
  if (text == "strided") return at::kStrided;
  ENSURE(text == "device");
  return options.device;
}

class Call {
 public:
  Call(std::span<const at::Tensor> operands, Samples samples, const ExecuteOptions& options)
      : operands_(operands), samples_(samples), options_(options) {}

  c10::IValue argument(const Value& value, c10::TypePtr type) {
    if (auto optional = type->cast<c10::OptionalType>()) {
      if (value.kind == Value::Kind::kNone) return {};
      type = optional->getElementType();
    }
    switch (value.kind) {
      case Value::Kind::kNone:
        return {};
      case Value::Kind::kSymbol:
        return symbol(value.text, options_);
      case Value::Kind::kString:
        return value.text;
      case Value::Kind::kList:
        return list(value.items, type->expectRef<c10::ListType>().getElementType());
      default:
        break;
    }
    if (auto list_type = type->cast<c10::ListType>()) {
      return list(std::span(&value, 1), list_type->getElementType());  // dim=0 for int[1]
    }
    return single(value, type);
  }

 private:
  c10::IValue single(const Value& value, const c10::TypePtr& type) {
    if (value.kind == Value::Kind::kTensor) return operands_[next_++];
    switch (type->kind()) {
      case c10::TypeKind::TensorType: {
        // What Python passes for a number in place of a tensor.
        at::Tensor wrapped = at::scalar_tensor(
            scalar_of(value, samples_), value.kind == Value::Kind::kInt ? at::kLong : at::kDouble);
        wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
        return wrapped;
      }
      case c10::TypeKind::FloatType:
        return number_of(value, samples_);
      case c10::TypeKind::NumberType:
        return scalar_of(value, samples_);
      case c10::TypeKind::BoolType:
        return value.integer.c != 0;
      default:
        return scalar_of(value, samples_).toLong();
    }
  }

  c10::IValue list(std::span<const Value> items, const c10::TypePtr& element) {
    c10::TypePtr held =
        element->kind() == c10::TypeKind::SymIntType ? c10::TypePtr(c10::IntType::get()) : element;
    c10::impl::GenericList result(held);
    for (const Value& item : items) result.push_back(argument(item, element));
    return result;
  }

  std::span<const at::Tensor> operands_;
  Samples samples_;
  const ExecuteOptions& options_;
  std::size_t next_ = 0;
};

void append(std::vector<at::Tensor>& results, const c10::IValue& value) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
  } else {
    results.push_back(value.isNone() ? at::Tensor() : value.toTensor());
  }
}

// Sets the arguments of a normalisation as inference would: in the backward operator, the saved
// statistics, which `results` makes the running ones, stand in for the running ones.
void use_running_statistics(std::string_view type, std::vector<c10::IValue>& arguments) {
  if (type == "aten._native_batch_norm_legit_functional.default") {
    arguments[5] = false;
    return;
  }
  ENSURE(type == "aten.native_batch_norm_backward.default");
  const at::Tensor deviation = arguments[6].toTensor();
  arguments[3] = arguments[5];
  arguments[4] = deviation.pow(-2) - arguments[8].toDouble();
  arguments[7] = false;
}

}  // namespace

at::ScalarType scalar_type(graph::DType dtype, Floats floats) {
  return executed(scalar_types().at(graph::dtype_name(dtype)), floats);
}

std::vector<std::int64_t> sizes_at(std::span<const graph::Affine> shape, std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  for (const graph::Affine& size : shape) sizes.push_back(size.at(samples));
  return sizes;
}

// What a slice is cut out of may lie otherwise in memory than what the graph was traced with:
// hence reshape for view.
PreparedOp::PreparedOp(const graph::ModelGraph& graph, OpId op,
                       std::span<const at::Tensor> operands, Samples samples,
                       const ExecuteOptions& options)
    : handle_(find_operator(graph.type_name(op) == "aten.view.default" ? "aten.reshape.default"
                                                                       : graph.type_name(op))) {
  const std::string_view type = graph.type_name(op);
  const auto& formal = handle_.schema().arguments();
  const auto args = graph.args(op);
  const auto kwargs = graph.kwargs(op);
  ENSURE(args.size() <= formal.size());

  Call call(operands, samples, options);
  for (std::size_t i = 0; i < formal.size(); ++i) {
    const Value* given = i < args.size() ? &args[i] : nullptr;
    for (const auto& [key, value] : kwargs) {
      if (key == formal[i].name()) given = &value;
    }
    if (given) {
      arguments_.push_back(call.argument(*given, formal[i].real_type()));
    } else {
      ENSURE(formal[i].default_value().has_value());
      arguments_.push_back(*formal[i].default_value());
    }
  }
  if (options.batch_norm == BatchNorm::kInference && type.find("batch_norm") != type.npos) {
    use_running_statistics(type, arguments_);
    saves_running_statistics_ = true;
  }
}

torch::jit::Stack PreparedOp::call() const {
  torch::jit::Stack stack = arguments_;
  handle_.callBoxed(stack);
  return stack;
}

std::vector<at::Tensor> PreparedOp::results() const {
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : call()) append(results, value);
  if (saves_running_statistics_ && results.size() == 5) {
    // Saved for the backward operator, which the graph does not give the running ones.
    results[1] = arguments_[3].toTensor();
    results[2] = (arguments_[4].toTensor() + arguments_[7].toDouble()).rsqrt();
  }
  return results;
}

std::vector<at::Tensor> execute(const graph::ModelGraph& graph, OpId op,
                                std::span<const at::Tensor> operands, Samples samples,
                                const ExecuteOptions& options) {
  return PreparedOp(graph, op, operands, samples, options).results();
}

}  // namespace heterog::runtime

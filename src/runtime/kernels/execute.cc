// Turns the arguments of a graph's op into those of an ATen operator, and calls it.
#include "runtime/kernels/execute.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "operators/facts.h"
#include "runtime/gpu/saved_results.h"
#include "runtime/kernels/cudnn_norm.h"
#include "runtime/kernels/dispatcher.h"
#include "runtime/kernels/fused_update.h"
#include "runtime/kernels/half_softmax.h"
#include "runtime/kernels/named_operands.h"
#include "runtime/kernels/operand_checks.h"

namespace heterog::runtime {
namespace {

using graph::Value;

// What a slice is cut out of may lie otherwise in memory than what the graph was traced with.
std::string_view called_type(const graph::ModelGraph& graph, OpId op) {
  const std::string_view other = graph.facts(op).called_as;
  return other.empty() ? graph.type_name(op) : other;
}

std::optional<c10::OperatorHandle> find_twin(const graph::ModelGraph& graph, OpId op) {
  if (!graph.facts(op).in_place_twin || graph.outputs(op).size() != 1) return std::nullopt;
  const auto args = graph.args(op);
  if (args.empty() || args[0].kind != Value::Kind::kTensor) return std::nullopt;
  const TensorId first = graph.inputs(op)[0];
  const TensorId out = graph.outputs(op)[0];
  const auto from = graph.shape(first);
  const auto to = graph.shape(out);
  if (graph.tensor(first).dtype != graph.tensor(out).dtype ||
      !std::equal(from.begin(), from.end(), to.begin(), to.end())) {
    return std::nullopt;
  }
  return twin_to_call(graph.type_name(op));
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
    case Value::Kind::kScalar:
      if (!value.integer.constant()) return value.integer.at(samples.whole);
      return number_of(value, samples);
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

// Builds the arguments, with nothing where a tensor goes, and notes these places.
class Arguments {
 public:
  Arguments(Samples samples, const ExecuteOptions& options)
      : samples_(samples), options_(options) {}

  void add(const Value& value, const c10::TypePtr& type) {
    stack_.push_back(argument(value, type));
    ++argument_;
  }
  void add(const c10::IValue& value) {
    stack_.push_back(value);
    ++argument_;
  }
  torch::jit::Stack stack() && { return std::move(stack_); }
  const std::vector<OperatorCall::Place>& places() const { return places_; }

 private:
  static constexpr std::uint32_t kNoItem = OperatorCall::kNoItem;

  c10::IValue argument(const Value& value, c10::TypePtr type, std::uint32_t item = kNoItem) {
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
    return single(value, type, item);
  }

  c10::IValue single(const Value& value, const c10::TypePtr& type, std::uint32_t item) {
    if (value.kind == Value::Kind::kTensor) {
      places_.push_back({argument_, item});
      return at::Tensor();
    }
    switch (type->kind()) {
      case c10::TypeKind::TensorType: {
        // What Python passes for a number in place of a tensor.
        const at::Scalar number = scalar_of(value, samples_);
        at::Tensor wrapped = at::scalar_tensor(
            number, number.isIntegral(/*includeBool=*/false) ? at::kLong : at::kDouble);
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
    for (std::size_t i = 0; i < items.size(); ++i) {
      result.push_back(argument(items[i], element, static_cast<std::uint32_t>(i)));
    }
    return result;
  }

  Samples samples_;
  const ExecuteOptions& options_;
  torch::jit::Stack stack_;
  std::vector<OperatorCall::Place> places_;
  std::uint32_t argument_ = 0;
};

void append(std::vector<at::Tensor>& results, c10::IValue value) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
  } else {
    results.push_back(value.isNone() ? at::Tensor() : std::move(value).toTensor());
  }
}

// Sets the arguments of a normalisation as inference would: in the backward operator, the saved
// statistics, which `results` makes the running ones, stand in for the running ones.
void use_running_statistics(const operators::BatchStatistics& statistics,
                            std::vector<c10::IValue>& arguments) {
  ENSURE(statistics.running);
  arguments[statistics.training] = false;
  if (!statistics.backward) return;
  const at::Tensor deviation = arguments[6].toTensor();
  arguments[3] = arguments[5];
  arguments[4] = deviation.pow(-2) - arguments[8].toDouble();
}

}  // namespace

at::ScalarType scalar_type(graph::DType dtype, Floats floats) {
  return executed(scalar_types().at(graph::dtype_name(dtype)), floats);
}

std::string type_text(at::ScalarType type, at::IntArrayRef sizes) {
  std::string name = at::toString(type);
  for (const auto& [known, its] : scalar_types()) {
    if (its == type) name = known;
  }
  return name + text_of_sizes(sizes);
}

std::string type_text(const at::Tensor& tensor) {
  return tensor.defined() ? type_text(tensor.scalar_type(), tensor.sizes()) : "nothing";
}

std::vector<std::int64_t> sizes_at(std::span<const graph::Affine> shape, std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  for (const graph::Affine& size : shape) sizes.push_back(size.at(samples));
  return sizes;
}

std::vector<at::Tensor> flat_results(torch::jit::Stack results) {
  std::vector<at::Tensor> flat;
  flat.reserve(results.size());
  for (c10::IValue& value : results) append(flat, std::move(value));
  return flat;
}

OperatorCall::OperatorCall(const graph::ModelGraph& graph, OpId op, Samples samples,
                           const ExecuteOptions& options)
    : handle_(operator_to_call(called_type(graph, op))),
      over_(find_twin(graph, op)),
      check_(operand_check(graph.type_name(op))),
      op_(printable(graph.op(op).name)) {
  if (graph.facts(op).multi_tensor) fits_ = options;
  const auto& formal = handle_.schema().arguments();
  const auto args = graph.args(op);
  const auto kwargs = graph.kwargs(op);
  ENSURE(args.size() <= formal.size());
  Arguments arguments(samples, options);
  for (std::size_t i = 0; i < formal.size(); ++i) {
    const Value* given = i < args.size() ? &args[i] : nullptr;
    for (const auto& [key, value] : kwargs) {
      if (key == formal[i].name()) given = &value;
    }
    if (given) {
      arguments.add(*given, formal[i].real_type());
    } else {
      ENSURE(formal[i].default_value().has_value());
      arguments.add(*formal[i].default_value());
    }
  }
  // The schema has its order of named arguments, a file another one: operands are in the file's.
  const auto take = [&](std::uint32_t argument) {
    for (const Place& place : arguments.places()) {
      if (place.argument == argument) places_.push_back(place);
    }
  };
  for (std::uint32_t i = 0; i < args.size(); ++i) take(i);
  for (const auto& [key, value] : kwargs) {
    take(static_cast<std::uint32_t>(*handle_.schema().argumentIndexWithName(key)));
  }
  const auto outputs = graph.outputs(op);
  outputs_ = outputs.size();
  // On GPUs kernels leave other things beside their results than on CPUs, as sizes for the backward
  // pass: those are made as CPUs leave them, for the rest what was inferred when the graph was
  // loaded has to do (infer.h). Proofs run in other types than the graph's.
  on_cpu_ = options.device.is_cpu();
  on_cuda_ = options.device.is_cuda();
  const bool held = options.batch_norm == BatchNorm::kTraining && options.floats == Floats::kOwn;
  for (std::size_t i = 0; (held || !on_cpu_) && i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    const graph::Tensor& tensor = graph.tensor(outputs[i]);
    std::vector<std::int64_t> sizes = sizes_at(graph.shape(outputs[i]), samples.slice);
    if (options.rows > 0 && !sizes.empty()) sizes[0] = options.rows;
    declared_.push_back(
        {i, tensor.name, scalar_type(tensor.dtype, options.floats), std::move(sizes)});
  }
  arguments_ = std::move(arguments).stack();
  check_lists(handle_.schema(), arguments_);
  const operators::Family family = graph.facts(op).family;
  const auto& statistics = graph.facts(op).batch_statistics;
  norm_backward_ = on_cuda_ && statistics && statistics->backward;
  half_softmax_ =
      (family == operators::Family::kSoftmax || family == operators::Family::kSoftmaxBackward) &&
      is_half_softmax(handle_.schema(), arguments_);
  ENSURE(places_.size() == graph.inputs(op).size());
  over_statistics_ = in_place_statistics_to_call(graph.type_name(op));
  for (std::size_t i = 0; over_statistics_ && i < places_.size(); ++i) {
    const std::string& name = formal[places_[i].argument].name();
    if (name == "running_mean" || name == "running_var") statistics_.push_back(i);
  }
}

torch::jit::Stack OperatorCall::bind(std::span<const at::Tensor> operands) const {
  EXPECT(operands.size() == places_.size());
  torch::jit::Stack stack = arguments_;
  std::uint32_t copied = kNoItem;  // the list that has been copied last
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place place = places_[i];
    c10::IValue value = operands[i].defined() ? c10::IValue(operands[i]) : undefined_at(place);
    if (place.item == kNoItem) {
      stack[place.argument] = std::move(value);
      continue;
    }
    if (copied != place.argument) {
      stack[place.argument] = stack[place.argument].toList().copy();
      copied = place.argument;
    }
    stack[place.argument].toList().set(place.item, std::move(value));
  }
  if (fits_) fit_lists(op_, handle_.schema(), stack, *fits_);
  return stack;
}

c10::IValue OperatorCall::undefined_at(Place place) const {
  const c10::Argument& formal = handle_.schema().arguments()[place.argument];
  c10::TypePtr type = formal.real_type();
  if (const auto list = type->cast<c10::ListType>()) type = list->getElementType();
  VALIDATE(type->kind() == c10::TypeKind::OptionalType,
           "op '{}' ({}): '{}' is a result that its operator leaves undefined", op_,
           handle_.schema().name(), formal.name());
  return {};
}

bool OperatorCall::gives_a_list() const {
  const auto& results = handle_.schema().returns();
  return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::ListType;
  });
}

void OperatorCall::check(torch::jit::Stack& arguments) const {
  if (!check_) return;
  try {
    check_operands(check_, handle_.schema(), arguments);
  } catch (const Error& error) {
    fail_input("op '{}': {}", op_, error.what());
  }
}

torch::jit::Stack OperatorCall::call_boxed(torch::jit::Stack arguments) const {
  check(arguments);
  if (on_cuda_) widen_saved_statistics(schema(), arguments);
  try {
    if (norm_backward_ && normalise_back_by_cudnn(arguments)) {
      // its results are there
    } else if (half_softmax_) {
      call_half_softmax(handle_, arguments);
    } else {
      handle_.callBoxed(arguments);
    }
  } catch (const c10::Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // of a library that PyTorch calls, oneDNN say
    TORCH_CHECK(false, error.what());
  }
  return arguments;
}

std::vector<at::Tensor> OperatorCall::call(torch::jit::Stack stack) const {
  at::Tensor first;
  if (!on_cpu_ && outputs_ > 1 && !stack.empty() && stack[0].isTensor())
    first = stack[0].toTensor();
  return as_declared(call_boxed(std::move(stack)), first);
}

std::vector<at::Tensor> OperatorCall::call_over_statistics(torch::jit::Stack stack) const {
  const at::Tensor first = stack[0].toTensor();
  std::vector<c10::IValue> written;
  for (const std::size_t operand : statistics_) written.push_back(stack[places_[operand].argument]);
  check(stack);
  if (!on_cuda_ || !normalise_by_cudnn(stack)) over_statistics_->callBoxed(stack);
  stack.insert(stack.end(), written.begin(), written.end());
  return as_declared(std::move(stack), on_cpu_ ? at::Tensor() : first);
}

// `first`: its first operand, on devices other than CPUs.
std::vector<at::Tensor> OperatorCall::as_declared(torch::jit::Stack stack,
                                                  const at::Tensor& first) const {
  std::vector<at::Tensor> results = flat_results(std::move(stack));
  // A piece of a list that the graph does not name would be left out of the step.
  VALIDATE(results.size() == outputs_ || (results.size() > outputs_ && !gives_a_list()),
           "op '{}': {} returns {} tensors here, and the graph has {} outputs", op_,
           handle_.schema().name(), results.size(), outputs_);
  if (on_cpu_) {
    check_results(results);
  } else if (outputs_ > 1) {
    for (const Declared& declared : declared_) {
      at::Tensor& result = results[declared.result];
      result = as_cpus_leave_it(schema(), declared.result, result, declared.sizes, first);
    }
  }
  return results;
}

// Whoever takes the results has made room for what the graph says.
void OperatorCall::check_results(std::span<const at::Tensor> results) const {
  for (const Declared& declared : declared_) {
    const at::Tensor& result = results[declared.result];
    VALIDATE(result.defined() && result.scalar_type() == declared.type &&
                 result.sizes() == at::IntArrayRef(declared.sizes),
             "op '{}' ({}): result '{}': {} is declared, the operator gives {}", op_,
             handle_.schema().name(), printable(declared.name, 60),
             type_text(declared.type, declared.sizes), type_text(result));
  }
}

at::Tensor OperatorCall::call_over(torch::jit::Stack stack) const {
  over_->callBoxed(stack);
  return std::move(stack[0]).toTensor();
}

PreparedOp::PreparedOp(const graph::ModelGraph& graph, OpId op,
                       std::span<const at::Tensor> operands, Samples samples,
                       const ExecuteOptions& options)
    : call_(graph, op, samples, options), arguments_(call_.bind(operands)) {
  const auto& statistics = graph.facts(op).batch_statistics;
  if (options.batch_norm == BatchNorm::kInference && statistics) {
    use_running_statistics(*statistics, arguments_);
    saves_running_statistics_ = true;
  }
}

torch::jit::Stack PreparedOp::call() const { return call_.call_boxed(arguments_); }

std::vector<at::Tensor> PreparedOp::results() const {
  std::vector<at::Tensor> results = call_.call(arguments_);
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

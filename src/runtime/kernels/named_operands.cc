// Finds arguments by name, and names them in errors.
#include "runtime/kernels/named_operands.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/kernels/numbers.h"

namespace heterog::runtime {

std::string text_of_sizes(at::IntArrayRef sizes) {
  std::string text;
  for (std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

bool Operands::has(std::string_view name) const {
  const auto& formal = schema_.arguments();
  return std::any_of(formal.begin(), formal.end(),
                     [&](const c10::Argument& one) { return one.name() == name; });
}

const c10::IValue& Operands::at(std::string_view name) const {
  const auto& formal = schema_.arguments();
  for (std::size_t i = 0; i < formal.size(); ++i) {
    if (formal[i].name() == name) return stack_[stack_.size() - formal.size() + i];
  }
  fail_expect("the operator has the argument", __FILE__, __LINE__);
}

bool Operands::given(std::string_view name) const {
  if (!has(name)) return false;
  const c10::IValue& value = at(name);
  return value.isTensor() ? value.toTensor().defined() : !value.isNone();
}

const at::Tensor& Operands::tensor(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isTensor() || !value.toTensor().defined()) refuse(name, "is missing");
  return value.toTensor();
}

std::int64_t Operands::integer(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isInt()) refuse(name, "is no integer");
  return value.toInt();
}

double Operands::real(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isDouble()) refuse(name, "is no number");
  return value.toDouble();
}

bool Operands::flag(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isBool()) refuse(name, "is neither true nor false");
  return value.toBool();
}

std::vector<std::int64_t> Operands::integers(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (value.isIntList()) return value.toIntVector();
  if (!value.isTensor()) refuse(name, "is no list of integers");
  const at::Tensor list = tensor(name).to(at::kCPU, at::kLong).contiguous();
  return {numbers_of<std::int64_t>(list), numbers_of<std::int64_t>(list) + list.numel()};
}

std::vector<bool> Operands::flags(std::string_view name, std::size_t count) const {
  const c10::IValue& value = at(name);
  if (!value.isBoolList()) refuse(name, "is no list of true and false");
  const c10::List<bool> list = value.toBoolList();
  if (list.size() == 1) return std::vector<bool>(count, list.get(0));
  if (list.size() != count) refuse(name, fmt::format("holds {} flags, not {}", list.size(), count));
  return {list.begin(), list.end()};
}

at::ScalarType Operands::dtype(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isInt()) refuse(name, "is no dtype");
  return value.toScalarType();
}

std::vector<at::Tensor> Operands::tensors(std::string_view name) const {
  const c10::IValue& value = at(name);
  if (!value.isTensorList()) refuse(name, "is no list of tensors");
  return value.toTensorVector();
}

std::int64_t Operands::size(std::string_view name, std::int64_t dim) const {
  const auto sizes = tensor(name).sizes();
  const std::int64_t at = dim < 0 ? dim + static_cast<std::int64_t>(sizes.size()) : dim;
  if (at < 0 || at >= static_cast<std::int64_t>(sizes.size())) {
    refuse(name, fmt::format("of sizes {} has no dimension {}", text_of_sizes(sizes), dim));
  }
  return sizes[static_cast<std::size_t>(at)];
}

void Operands::refuse(std::string_view name, const std::string& what) const {
  std::string type = schema_.name();
  if (const std::size_t colons = type.find("::"); colons != type.npos) type.replace(colons, 2, ".");
  fail_input("{}.{}: '{}' {}", type,
             schema_.overload_name().empty() ? "default" : schema_.overload_name(), name, what);
}

void Operands::have_dims(std::string_view name, std::int64_t least, std::int64_t most) const {
  if (!given(name)) return;
  if (dims(name) >= least && dims(name) <= most) return;
  refuse(name, least == most
                   ? fmt::format("has {} dimensions, not {}", dims(name), least)
                   : fmt::format("has {} dimensions, outside {} … {}", dims(name), least, most));
}

void Operands::have_sizes(std::string_view name, at::IntArrayRef sizes) const {
  if (!given(name) || tensor(name).sizes() == sizes) return;
  refuse(name, fmt::format("has sizes {}, not {}", text_of_sizes(tensor(name).sizes()),
                           text_of_sizes(sizes)));
}

void Operands::have_elements(std::string_view name, std::int64_t count) const {
  if (!given(name) || tensor(name).numel() == count) return;
  refuse(name, fmt::format("has {} elements, not {}", tensor(name).numel(), count));
}

void Operands::be_like(std::string_view name, std::string_view other) const {
  have_sizes(name, tensor(other).sizes());
}

void Operands::have_dtype(std::string_view name, at::ScalarType type) const {
  if (!given(name) || tensor(name).scalar_type() == type) return;
  refuse(name, fmt::format("is of {}, not of {}", at::toString(tensor(name).scalar_type()),
                           at::toString(type)));
}

void Operands::lie_in(std::string_view name, std::int64_t value, std::int64_t least,
                      std::int64_t most) const {
  if (value >= least && value <= most) return;
  refuse(name, least == most ? fmt::format("holds {}, not {}", value, least)
                             : fmt::format("holds {}, outside {} … {}", value, least, most));
}

namespace {

// Of a tensor of one element in host memory. Not by item(), which is what waits for a device.
std::int64_t number_in(const at::Tensor& tensor) {
  return *numbers_of<std::int64_t>(tensor.to(at::kLong));
}

}  // namespace

void Operands::hold(std::string_view name, std::int64_t least, std::int64_t end) const {
  if (!given(name)) return;
  const at::Tensor& tensor = this->tensor(name);
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    refuse(name, "does not hold integers");
  }
  if (!tensor.is_cpu() || tensor.numel() == 0) return;
  const auto [low, high] = at::aminmax(tensor);
  lie_in(name, number_in(low), least, end - 1);
  lie_in(name, number_in(high), least, end - 1);
}

void Operands::hold_or(std::string_view name, std::int64_t end, std::int64_t also) const {
  const at::Tensor& tensor = this->tensor(name);
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    refuse(name, "does not hold integers");
  }
  if (!tensor.is_cpu()) return;
  const at::Tensor list = tensor.to(at::kLong).contiguous();
  const auto* values = numbers_of<std::int64_t>(list);
  for (std::int64_t i = 0; i < list.numel(); ++i) {
    if (values[i] != also) lie_in(name, values[i], 0, end - 1);
  }
}

}  // namespace heterog::runtime

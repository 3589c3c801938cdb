// The arguments of a call to an operator by the names of its schema, and what may be asked of them.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

namespace heterog::runtime {

// The arguments of a call by their names. What is asked for and does not hold is an input error
// that names the operator and the argument.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  bool has(std::string_view name) const;    // whether the operator takes it
  bool given(std::string_view name) const;  // and the call sets it
  const at::Tensor& tensor(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::vector<std::int64_t> integers(std::string_view name) const;
  // `count` of them, as the argument lists them or one for all.
  std::vector<bool> flags(std::string_view name, std::size_t count) const;
  at::ScalarType dtype(std::string_view name) const;
  std::vector<at::Tensor> tensors(std::string_view name) const;  // of an argument that is a list
  std::int64_t dims(std::string_view name) const { return tensor(name).dim(); }
  // The size of a dimension, counted from the end if negative; an input error if there is none.
  std::int64_t size(std::string_view name, std::int64_t dim) const;

  // An argument that is not given passes all of these.
  void have_dims(std::string_view name, std::int64_t least, std::int64_t most) const;
  void have_sizes(std::string_view name, at::IntArrayRef sizes) const;
  void have_elements(std::string_view name, std::int64_t count) const;
  void be_like(std::string_view name, std::string_view other) const;
  void have_dtype(std::string_view name, at::ScalarType type) const;
  // `value`, of argument `name`, is one of least … most.
  void lie_in(std::string_view name, std::int64_t value, std::int64_t least,
              std::int64_t most) const;
  // All elements of an integer tensor are at least `least` and below `end`. Not looked at on a GPU:
  // its kernels check them, and reading them here would wait for the device.
  void hold(std::string_view name, std::int64_t least, std::int64_t end) const;
  // The same, or equal to `also`.
  void hold_or(std::string_view name, std::int64_t end, std::int64_t also) const;
  [[noreturn]] void refuse(std::string_view name, const std::string& what) const;
  const c10::FunctionSchema& schema() const { return schema_; }

 private:
  const c10::IValue& at(std::string_view name) const;

  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

// "[2, 3]".
std::string text_of_sizes(at::IntArrayRef sizes);

}  // namespace heterog::runtime

// Gives scripts/fuzz/operators.py the checks that a program makes before it calls an operator.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include "runtime/kernels/operand_checks.h"

namespace {

// The arguments as they go to the kernel, or an exception.
torch::jit::Stack checked(const std::string& name, const std::string& overload,
                          const std::string& type, const py::args& args, const py::kwargs& kwargs) {
  using namespace heterog::runtime;
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  torch::jit::Stack stack =
      torch::jit::createStackForSchema(handle.schema(), args, kwargs, std::nullopt);
  check_lists(handle.schema(), stack);
  if (const OperandCheck check = operand_check(type)) {
    check_operands(check, handle.schema(), stack);
  }
  return stack;
}

// The operator's results, as the program would get them.
py::object call(const std::string& name, const std::string& overload, const std::string& type,
                const py::args& args, const py::kwargs& kwargs) {
  torch::jit::Stack stack = checked(name, overload, type, args, kwargs);
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).callBoxed(stack);
  return torch::jit::createPyObjectForStack(std::move(stack));
}

}  // namespace

PYBIND11_MODULE(kernel_checks, module) { module.def("call", call); }

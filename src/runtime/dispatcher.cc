// Looks operators up in PyTorch's dispatcher.
#include "runtime/dispatcher.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "operators/allowed.h"
#include "runtime/operators.h"

namespace heterog::runtime {

namespace {

bool has_twin(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "aten.add.Tensor",    "aten.add.Scalar",         "aten.sub.Tensor",
      "aten.mul.Tensor",    "aten.mul.Scalar",         "aten.div.Tensor",
      "aten.div.Scalar",    "aten.addcmul.default",    "aten.addcdiv.default",
      "aten.lerp.Scalar",   "aten.lerp.Tensor",        "aten.sqrt.default",
      "aten.rsqrt.default", "aten.reciprocal.default", "aten.neg.default",
      "aten.exp.default",   "aten.tanh.default",       "aten.sigmoid.default",
      "aten.relu.default",  "aten.pow.Tensor_Scalar",  "aten.masked_fill.Scalar",
  };
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

}  // namespace

std::optional<c10::OperatorHandle> find_operator(std::string_view type) {
  const OperatorName name = operator_name(type);
  return c10::Dispatcher::singleton().findSchema({name.name, name.overload});
}

c10::OperatorHandle operator_to_call(std::string_view type) {
  ENSURE(operators::is_allowed(type));
  const OperatorName name = operator_name(type);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload.c_str());
}

std::optional<c10::OperatorHandle> twin_to_call(std::string_view type) {
  if (!has_twin(type)) return std::nullopt;
  const OperatorName name = operator_name(type);
  return c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload});
}

}  // namespace heterog::runtime

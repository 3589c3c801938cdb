// Looks operators up in PyTorch's dispatcher.
#include "runtime/kernels/dispatcher.h"

#include "base/check.h"
#include "operators/allowed.h"
#include "operators/facts.h"
#include "runtime/kernels/operators.h"

namespace heterog::runtime {

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
  if (!operators::facts(type).in_place_twin) return std::nullopt;
  const OperatorName name = operator_name(type);
  return c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload});
}

}  // namespace heterog::runtime

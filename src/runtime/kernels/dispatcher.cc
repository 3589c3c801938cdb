// Looks operators up in PyTorch's dispatcher.
#include "runtime/kernels/dispatcher.h"

#include <fmt/format.h>

#include <string>

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

c10::OperatorHandle list_form_to_call(const operators::ListForm& form, std::string_view overload,
                                      bool over) {
  const std::string name = fmt::format("aten::{}{}", form.name, over ? "_" : "");
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(),
                                                        std::string(overload).c_str());
}

}  // namespace heterog::runtime

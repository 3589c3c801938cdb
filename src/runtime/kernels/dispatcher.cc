// Looks operators up in PyTorch's dispatcher.
#include "runtime/kernels/dispatcher.h"

#include <fmt/format.h>

#include <mutex>
#include <string>

#include "base/check.h"
#include "operators/allowed.h"
#include "operators/facts.h"
#include "operators/running_statistics.h"
#include "runtime/kernels/operators.h"
#include "runtime/kernels/own_operators.h"

namespace heterog::runtime {

namespace {

c10::Dispatcher& dispatcher() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A process of Python that exports has told it of them before
    // (python/heterog/export/operators/linear4bit.py): then those are taken.
    const auto known = c10::Dispatcher::singleton().findSchema({"heterog::linear4bit", ""});
    if (!known) register_own_operators();
  });
  return c10::Dispatcher::singleton();
}

}  // namespace

std::optional<c10::OperatorHandle> find_operator(std::string_view type) {
  const OperatorName name = operator_name(type);
  return dispatcher().findSchema({name.name, name.overload});
}

c10::OperatorHandle operator_to_call(std::string_view type) {
  ENSURE(operators::is_allowed(type));
  const OperatorName name = operator_name(type);
  return dispatcher().findSchemaOrThrow(name.name.c_str(), name.overload.c_str());
}

std::optional<c10::OperatorHandle> twin_to_call(std::string_view type) {
  if (!operators::facts(type).in_place_twin) return std::nullopt;
  const OperatorName name = operator_name(type);
  return dispatcher().findSchema({name.name + "_", name.overload});
}

std::optional<c10::OperatorHandle> in_place_statistics_to_call(std::string_view type) {
  if (!operators::makes_running_statistics(operators::facts(type))) return std::nullopt;
  return dispatcher().findSchema({"aten::_native_batch_norm_legit", ""});
}

c10::OperatorHandle list_form_to_call(const operators::ListForm& form, std::string_view overload,
                                      bool over) {
  const std::string name = fmt::format("aten::{}{}", form.name, over ? "_" : "");
  return dispatcher().findSchemaOrThrow(name.c_str(), std::string(overload).c_str());
}

}  // namespace heterog::runtime

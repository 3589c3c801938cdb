// The one place where PyTorch is asked for operators by name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

#include "operators/list_forms.h"

namespace heterog::runtime {

// An operator to look at: its arguments, its tags. Nothing if PyTorch has none of that name.
std::optional<c10::OperatorHandle> find_operator(std::string_view type);  // "aten.mm.default"

// An operator to call. Only those of the project's table are given out, whatever stands in a file:
// the others could write files or change what is no tensor of the step (operators/allowed.h).
c10::OperatorHandle operator_to_call(std::string_view type);

// The twin of an operator of one element at a time that writes over its first argument ("add_" of
// "add"); nothing for all other operators.
std::optional<c10::OperatorHandle> twin_to_call(std::string_view type);

// A batch normalisation that writes the next running statistics over those that it is given;
// nothing for operators that make none.
std::optional<c10::OperatorHandle> in_place_statistics_to_call(std::string_view type);

// The form over lists of an operator (operators/list_forms.h), of which `overload` says what its
// other operands are; `over`: the one that writes over its first list.
c10::OperatorHandle list_form_to_call(const operators::ListForm& form, std::string_view overload,
                                      bool over);

}  // namespace heterog::runtime

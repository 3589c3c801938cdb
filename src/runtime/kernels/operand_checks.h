// Checks of operands that some kernels of PyTorch leave out: that sizes fit together, and that
// integers point inside of a tensor.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/kernels/named_operands.h"

namespace heterog::runtime {

// Throws an input error if the operands of a call do not go together.
using OperandCheck = void (*)(const Operands&);

// The check of an operator ("aten.mm.default"); null for those that check for themselves.
OperandCheck operand_check(std::string_view type);

// Checks the arguments of a call, and lays those without gaps in memory that the kernel would read
// past: an expanded tensor, a cut of a larger one.
void check_operands(OperandCheck check, const c10::FunctionSchema& schema,
                    torch::jit::Stack& stack);

// Lists of numbers are as long as the schema says ("int[2] padding"), or of one number for all. For
// every operator, and once: lists do not change from call to call.
void check_lists(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// The operators that have one, in the order of the table.
std::vector<std::string_view> checked_operators();

}  // namespace heterog::runtime

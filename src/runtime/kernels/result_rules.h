// Sizes and dtypes of results where LibTorch has no kernel for tensors without memory.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/kernels/named_operands.h"

namespace heterog::runtime {

// A rule for the results of an operator from operands without memory (of the device "meta"): as
// many results, of their sizes and dtypes, without memory too; undefined where it leaves one
// undefined. Throws an input error, or what LibTorch throws, if the operands do not go together.
using ResultRule = std::vector<at::Tensor> (*)(const Operands&);

// The rule of an operator ("aten.relu.default"); null for those that LibTorch infers itself, and
// for those of which only the call says what they make.
ResultRule result_rule(std::string_view type);

// Into how many tensors an operator that gives a list cuts its operand: up to 2^40 where a file
// says so. Nothing where it gives no more than it is given.
std::optional<std::int64_t> pieces(std::string_view type, const Operands& operands);

// The operators that have a rule, in the order of the table.
std::vector<std::string_view> ruled_operators();

}  // namespace heterog::runtime

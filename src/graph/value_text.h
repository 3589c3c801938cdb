// The string form of arguments in graph files: "%12", "#4B+1", "$1/4B", ":float32", "'trunc".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/value.h"

namespace heterog::graph {

// Nothing if it is malformed, out of range, or divides by zero at some batch.
std::optional<Value> parse_value(std::string_view text);

// The inverse, for kSize, kScalar, kReciprocal, kSymbol, kString, kTensor and floats that JSON
// lacks.
std::string value_text(const Value& value);

}  // namespace heterog::graph

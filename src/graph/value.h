// Arguments of operators, as the graph file carries them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/types.h"

namespace heterog::graph {

// One argument. Which members count depends on `kind`.
struct Value {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,        // integer.c ≠ 0
    kInt,         // integer.c
    kFloat,       // number
    kSize,        // integer: shape-like, a slice takes its own sample count
    kScalar,      // affine arithmetic scalar of the whole batch: number·B + offset; where it is
                  // written with integers `integer` is the same, and it is an integer: a ≠ 0
    kReciprocal,  // arithmetic scalar number / integer.at(B) of the whole batch
    kSymbol,      // text: dtype, layout, memory format, "device"
    kString,      // text
    kTensor,      // tensor
    kList,        // items
  };
  Kind kind = Kind::kNone;
  TensorId tensor;
  Affine integer;
  double number = 0;
  double offset = 0;
  std::string text;
  std::vector<Value> items;

  friend bool operator==(const Value&, const Value&) = default;
};

}  // namespace heterog::graph

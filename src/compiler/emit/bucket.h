// Partial values that share one all-reduce.
#pragma once

#include <vector>

#include "compiler/emit/sums.h"

namespace heterog::compiler {

// Values that the same devices have addends of, and that become ready one after another.
struct Bucket {
  struct Value {
    TensorId tensor;
    std::vector<Location> addends;  // one per device, of every value on the same devices
    InPlace in_place = InPlace::kNo;
    cost::Compression compression = {};
  };
  std::vector<Value> values;
  Bytes bytes = 0;
};

// Emits the all-reduce and notes the totals. Several values are copied into one buffer per device,
// reduced, and read from there. Bytes: greater than 0, of the values as they are.
void all_reduce_bucket(Emission& e, const Bucket& bucket);

}  // namespace heterog::compiler

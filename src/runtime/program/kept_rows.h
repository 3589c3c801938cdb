// Who keeps which rows of a tensor that stays.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/program.h"

namespace heterog::runtime {

// Rows [begin, end) along axis 0.
struct KeptRows {
  DeviceId rank;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

// Of a tensor that nobody keeps whole: all rows, ascending, each once. Else empty.
std::vector<KeptRows> kept_rows(const Job& job, TensorId tensor);

}  // namespace heterog::runtime

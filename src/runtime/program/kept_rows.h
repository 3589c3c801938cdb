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

// Of a tensor that the ranks keep by rows: all rows, ascending, each once. Empty: it is whole
// wherever it is kept.
std::vector<KeptRows> kept_rows(const Job& job, TensorId tensor);

}  // namespace heterog::runtime

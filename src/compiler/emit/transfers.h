// A value on its way from one device to another.
#pragma once

#include <cstdint>

#include "compiler/emit/emission.h"

namespace heterog::compiler {

struct Transfer {
  TaskKind kind = TaskKind::kTransfer;
  OpId op;  // for the record
  TensorId tensor;
  DeviceId source;
  DeviceId destination;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Bytes bytes = 0;
  Bytes bytes_at_destination = 0;  // 0: it comes where the old value is
  Encoding encoding = Encoding::kDense;
  std::int64_t first_row = 0;  // kPart
  std::int64_t rows = 0;       // kRows, kPart: their number
  // The value that is sent is an addend; one of a mean is multiplied by its weight.
  bool weighted = false;
  double weight = 1;
  cost::Compression compression = {};  // a cast: `bytes` are then those of the value as it is
};

// Emits it. The result is where it arrives: in a buffer of its own, if it has bytes there.
Source transfer(Emission& e, const Transfer& spec, const Source& from);

}  // namespace heterog::compiler

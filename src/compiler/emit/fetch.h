// Fetching: the operands of an op are brought to where it runs, as they are, as the missing samples
// of a slice, or added up.
#pragma once

#include <cstddef>
#include <vector>

#include "compiler/emit/emission.h"
#include "graph/folded.h"

namespace heterog::compiler {

// An instance of an op, or of an update, that reads.
struct Reader {
  OpId op;
  decide::LayoutId layout;
  std::size_t instance = 0;
};

// Emits the transfers, merges and sums that are missing for the reader to read `read`, and appends
// what it then reads to `sources`.
void fetch(Emission& e, const Reader& reader, const graph::Read& read,
           std::vector<Source>& sources);

// An input or buffer that instances of a layout read on a device is there before the step.
void keep_external(Emission& e, TensorId tensor, decide::LayoutId layout, DeviceId device);

}  // namespace heterog::compiler

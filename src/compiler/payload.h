// Payload of a task that moves, gathers or adds values: which tensors, in what form, who gives
// which part of them, and how the parts make one value.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "cluster/cluster.h"
#include "cost/compression.h"
#include "graph/types.h"

namespace heterog {

using BufferId = Id<struct BufferTag>;

namespace compiler {

using PayloadId = Id<struct PayloadTag>;

// The form in which a value travels, and in which it lies where it arrived.
enum class Encoding : std::uint8_t {
  kDense,  // every element, in the tensor's own type
  kRows,   // the rows that are not zero, each with its index: the gradient of an embedding
  kPart,   // every element of some rows along axis 0, which the giver alone has: one of several
           // servers, or one of those who keep a frozen parameter in rows
};

// The reduction of the contributions; each kind of task has one (reduction_of).
enum class Reduction : std::uint8_t {
  kNone,     // there is one: it arrives as it is
  kGather,   // put side by side, by everyone
  kSum,      // added up, each times its weight
  kScatter,  // added up, each times its weight; of the sum everyone keeps an interval of its own
};

std::string_view encoding_name(Encoding encoding);     // "dense", "rows", "part"
std::string_view reduction_name(Reduction reduction);  // "none", "gather", "sum", "scatter"

// A tensor among those that a task carries.
struct Carried {
  TensorId tensor;
  bool weighted = false;               // a mean over samples: contributions count by their weights
  cost::Compression compression = {};  // in which form it travels; where it arrives it is whole
  friend bool operator==(const Carried&, const Carried&) = default;
};

// The part that one device gives.
struct Contribution {
  DeviceId device;
  BufferId buffer;  // merges, sums: where it lies on the task's device; transfers: at the source;
                    // invalid: in static memory, or, of a collective, found by device and tensor
  Encoding encoding = Encoding::kDense;
  // Transfers and merges: samples of the value, of those that the buffer's maker made. Collectives
  // that scatter or gather: elements that the device keeps or gives. kRows: [0, number of
  // rows), the last of which may be padding. kPart: rows along axis 0. Else the whole value: [0,
  // batch).
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // By which what is weighted is multiplied: the share of the batch that the contribution was made
  // from, or 1 where that has been done.
  double weight = 1;
  friend bool operator==(const Contribution&, const Contribution&) = default;
};

}  // namespace compiler
}  // namespace heterog

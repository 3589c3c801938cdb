// What transfers are believed to take: a line in the bytes for every pair of devices.
#pragma once

#include <utility>
#include <vector>

#include "search/placement/placement_graph.h"

namespace heterog::search {

struct TransferLine {
  double fixed = 0;                   // ns
  double per_byte = 0;                // ns
  Nanoseconds at(Bytes bytes) const;  // never below 0
  friend bool operator==(const TransferLine&, const TransferLine&) = default;
};

// The line of least squares through observed transfers (FastT §4); through the origin where all
// were of one size; 0 where there was none.
class TransferLines {
 public:
  explicit TransferLines(std::size_t devices) : devices_(devices), sums_(devices * devices) {}

  void observe(DeviceId from, DeviceId to, Bytes bytes, Nanoseconds took);
  TransferLine line(DeviceId from, DeviceId to) const;
  // Of all pairs of two devices: the distinct lines, each with how many pairs have it.
  std::vector<std::pair<TransferLine, Nanoseconds>> kinds() const;

 private:
  struct Sums {
    double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  };
  std::size_t devices_;
  std::vector<Sums> sums_;  // [from][to]
};

// What the graph believes of it: its lines, or else what the cluster's links take.
Nanoseconds transfer_time(const PlacementGraph& graph, DeviceId from, DeviceId to, Bytes bytes);

}  // namespace heterog::search

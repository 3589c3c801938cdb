// Measured all-reduces of configs/calibration, and what the formula says of each.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "cluster/cluster_io.h"

namespace heterog::cost {

struct AllReduceSample {
  std::string device;  // which names the system: all boxes of one kind hold 8 of them
  int devices = 0;
  int machines = 1;
  Bytes bytes = 0;
  std::string algorithm;  // "NCCL 2.0 MPI": the fastest of those that were tried
  double seconds = 0;
  bool held_out = false;  // every fifth row is kept from the fit

  // The other libraries stand where NCCL was not measured or lost; the constants are NCCL's.
  bool nccl() const { return algorithm.starts_with("NCCL"); }
};

std::vector<AllReduceSample> read_all_reduce_samples(const std::string& path);

// The ring, which is what NCCL 2.0 runs, on machines of the sample's kinds of link.
double predicted_seconds(const AllReduceSample& sample, const cluster::LinkDatabase& links);

}  // namespace heterog::cost

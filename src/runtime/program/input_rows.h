// Samples of a step's inputs that a rank reads: the part of the batch that it has to be given.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/model_graph.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// Samples [begin, end) of the batch.
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// Whether the input has an entry a sample; else every rank reads all of it.
bool has_samples(const graph::ModelGraph& graph, TensorId input);

// Those that any of these ranks reads of any input that has samples, in order, as far apart as they
// are: where one range ends, the next does not begin.
std::vector<SampleRange> samples_read(const Job& job, const std::vector<DeviceId>& ranks);

}  // namespace heterog::runtime

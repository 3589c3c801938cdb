// Formulas of cost/compression.h, over the devices of a collective.
#include "compiler/emit/compress.h"

#include <algorithm>
#include <map>

namespace heterog::compiler {
namespace {

cost::CompressionWork work_of(const Emission& e, std::span<const Compressed> gradients) {
  cost::CompressionWork work;
  for (const Compressed& one : gradients) {
    work += cost::compression_work(one.compression, *e.problem.graph, one.tensor);
  }
  return work;
}

// One collective after another: links are held for both.
cost::CollectiveCost one_after_another(const cost::CollectiveCost& first,
                                       const cost::CollectiveCost& second) {
  cost::CollectiveCost both{.algorithm = first.algorithm,
                            .duration = first.duration + second.duration};
  std::map<LinkId, Nanoseconds> held;
  for (const cost::CollectiveCost* one : {&first, &second}) {
    for (const auto& [link, duration] : one->links) held[link] += duration;
  }
  both.links.assign(held.begin(), held.end());
  return both;
}

}  // namespace

Moved compressed_all_reduce(Emission& e, std::span<const Compressed> gradients,
                            const std::vector<DeviceId>& devices) {
  const graph::ModelGraph& graph = *e.problem.graph;
  cost::CompressedBytes bytes;
  Moved moved;
  for (const Compressed& one : gradients) {
    const auto own = cost::compressed_bytes(one.compression, graph, one.tensor);
    bytes += own;
    if (!one.compression.any()) continue;
    moved.scratch += own.total();
    for (DeviceId device : devices) {
      keep_compression_state(e, device,
                             cost::compression_state(one.compression, graph, one.tensor));
    }
  }
  moved.bytes = bytes.total();
  moved.cost = e.costs.all_reduce(devices, bytes.first);
  if (bytes.second > 0) {
    moved.cost = one_after_another(moved.cost, e.costs.all_reduce(devices, bytes.second));
  }
  moved.cost.duration += slowest_compression(e, devices, work_of(e, gradients));
  return moved;
}

Moved compressed_scatter(Emission& e, std::span<const Compressed> gradients,
                         const std::vector<DeviceId>& devices, Bytes padded) {
  const graph::ModelGraph& graph = *e.problem.graph;
  Moved moved{.cost = e.costs.all_gather(devices, padded)};
  for (const Compressed& one : gradients) {
    const Bytes own = cost::compressed_bytes(one.compression, graph, one.tensor).first;
    moved.bytes += own;
    if (!one.compression.any()) continue;
    moved.scratch += own;
    for (DeviceId device : devices) {
      keep_compression_state(e, device,
                             cost::compression_state(one.compression, graph, one.tensor));
    }
  }
  moved.cost.duration += slowest_compression(e, devices, work_of(e, gradients));
  return moved;
}

Nanoseconds slowest_compression(const Emission& e, std::span<const DeviceId> devices,
                                const cost::CompressionWork& work) {
  Nanoseconds slowest = 0;
  for (DeviceId device : devices) {
    slowest = std::max(slowest, cost::compression_duration(e.type_of(device), work));
  }
  return slowest;
}

void keep_compression_state(Emission& e, DeviceId device, Bytes bytes) {
  if (bytes == 0) return;
  e.compression_state.resize(e.builder.plan().device_count);
  e.compression_state[device] += bytes;
}

}  // namespace heterog::compiler

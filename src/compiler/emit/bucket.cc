// One collective for all values of a bucket.
#include "compiler/emit/bucket.h"

#include <algorithm>

#include "compiler/emit/compress.h"

namespace heterog::compiler {

namespace {

Moved moved(Emission& e, const Bucket& bucket, const std::vector<DeviceId>& devices) {
  std::vector<Compressed> all;
  for (const Bucket::Value& value : bucket.values) all.push_back({value.tensor, value.compression});
  const bool any =
      std::ranges::any_of(all, [](const Compressed& one) { return one.compression.any(); });
  if (any) return compressed_all_reduce(e, all, devices);
  return {.cost = e.costs.all_reduce(devices, bucket.bytes), .bytes = bucket.bytes};
}

}  // namespace

void all_reduce_bucket(Emission& e, const Bucket& bucket) {
  const Bucket::Value& first = bucket.values.front();
  const bool alone = bucket.values.size() == 1;
  const Reduced reduced{.tensor = first.tensor,
                        .bytes = bucket.bytes,
                        .in_place = alone ? first.in_place : InPlace::kNo,
                        .compression = first.compression};
  const std::vector<Location> results =
      all_reduce(e, reduced, first.addends, moved(e, bucket, devices_of(first.addends)));
  const TaskId task = results.front().source.task;
  for (const Bucket::Value& value : bucket.values) {
    if (value.tensor != first.tensor) {
      const bool is_mean = e.problem.splits->rules[value.tensor].kind == graph::SplitKind::kMean;
      e.builder.carry(task, {value.tensor, is_mean, value.compression});
      for (const Location& addend : value.addends) {
        e.builder.depend(addend.source.task, task);
        e.builder.read(task, addend.source.buffer);
      }
    }
    e.where.set_total(value.tensor, results);
  }
}

}  // namespace heterog::compiler

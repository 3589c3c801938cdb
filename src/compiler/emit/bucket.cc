// One collective for all values of a bucket.
#include "compiler/emit/bucket.h"

namespace heterog::compiler {

void all_reduce_bucket(Emission& e, const Bucket& bucket) {
  const Bucket::Value& first = bucket.values.front();
  const bool alone = bucket.values.size() == 1;
  const std::vector<Location> reduced = all_reduce(e, first.tensor, first.addends, bucket.bytes,
                                                   alone ? first.in_place : InPlace::kNo);
  const TaskId task = reduced.front().source.task;
  for (const Bucket::Value& value : bucket.values) {
    if (value.tensor != first.tensor) {
      const bool is_mean = e.problem.splits->rules[value.tensor].kind == graph::SplitKind::kMean;
      e.builder.carry(task, {value.tensor, is_mean});
      for (const Location& addend : value.addends) {
        e.builder.depend(addend.source.task, task);
        e.builder.read(task, addend.source.buffer);
      }
    }
    e.where.set_total(value.tensor, reduced);
  }
}

}  // namespace heterog::compiler

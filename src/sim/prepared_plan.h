// A plan as the event loop reads it: one record per task, and the tasks sorted by what they hold.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan.h"

namespace heterog::sim {

// The record of a task that the loop reads at its start and end. `lane` below the number of
// streams: it waits for that stream alone; else it belongs to hold set lane − streams.
struct TaskRecord {
  std::uint32_t waiting_for = 0;  // predecessors that have not ended
  std::uint32_t order = 0;
  std::uint32_t lane = 0;
  std::uint32_t device = 0;
  Bytes take = 0;  // workspace and buffers on its own device, from its start
  Bytes give = 0;  // of these, what nobody reads: until its end
};

struct BufferRecord {
  Bytes bytes = 0;
  std::uint32_t device = 0;
  std::uint32_t references = 0;  // readers that have not ended
};

// A stream is a resource whose every holder holds nothing else, from its start to its end, and
// slows no device: compute streams are. Its tasks contend with no others, so streams advance apart
// from each other. The other tasks are sorted by the set of resources that they hold: those of one
// set are all blocked or all free, and only the first of them in order need be looked at.
struct PreparedPlan {
  std::vector<TaskRecord> tasks;
  std::vector<BufferRecord> buffers;
  std::size_t streams = 0;
  std::vector<TaskId> hold_sets;                // a task of each: its holds name the resources
  std::vector<std::uint8_t> allocates_foreign;  // tasks with buffers on other devices than theirs
  bool any_foreign = false;

  // Totals that no schedule changes.
  IdVector<DeviceId, Nanoseconds> device_busy;
  IdVector<LinkId, Nanoseconds> link_busy;
  IdVector<LinkId, Bytes> link_bytes;

  // The compute stream of a device; `streams` or more where it is none.
  std::uint32_t compute_stream(DeviceId device) const { return stream_of_[device.value()]; }

  // Keeps its memory. O(tasks + holds + buffers).
  void prepare(const compiler::Plan& plan);

 private:
  void find_streams(const compiler::Plan& plan);
  std::uint32_t hold_set(const compiler::Plan& plan, TaskId task);
  void add_memory(const compiler::Plan& plan, TaskId task);

  std::vector<std::uint32_t> stream_of_;  // [resource] → stream, kShared or kUnused
  std::vector<std::uint32_t> table_;      // hash table of hold sets, open addressing
};

}  // namespace heterog::sim

// When the tasks of a plan really ran, over all ranks, and how far from what was predicted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/worker.h"

namespace heterog::runtime {

// One recorded step of one rank.
struct RankRecord {
  Nanoseconds start = 0;  // of the step, by the clock of rank 0
  Nanoseconds duration = 0;
  IdVector<InstructionId, Span> spans;
};

// One step of all ranks, from the moment at which the first of them began. A transfer lasts from
// when both its ends were at it until it has arrived; a collective from when its last member came
// until the last one left.
struct MeasuredStep {
  IdVector<TaskId, Nanoseconds> begin;
  IdVector<TaskId, Nanoseconds> end;
  Nanoseconds duration = 0;
};
MeasuredStep merge_records(const Job& job, const compiler::Plan& plan,
                           const IdVector<DeviceId, RankRecord>& records);

// By how much the clock of rank 0 is ahead of this rank's: the middle of the shortest of several
// round trips. All ranks call it together.
Nanoseconds clock_offset(Transport& transport);
// The records of all ranks, on every rank. All ranks call it together.
IdVector<DeviceId, RankRecord> gather_records(const Job& job, const RankRecord& own,
                                              Transport& transport);

// What tasks of one kind took, and were thought to take.
struct Drift {
  std::string what;  // "matrix products on a/gpu0", "a/gpu0 → b/gpu0"
  std::int64_t tasks = 0;
  double predicted_seconds = 0;  // in a step, added up
  double measured_seconds = 0;   // typical durations, added up
  double ratio() const { return measured_seconds / predicted_seconds; }
};
// By class of operator and device, by pair of devices, by device set; those that take longest
// first. `steps`: at least one.
std::vector<Drift> drift(const Job& job, const compiler::Plan& plan,
                         const std::vector<MeasuredStep>& steps);

// Each task's mean duration over the middle half of the steps, by how long these took.
IdVector<TaskId, Nanoseconds> typical_durations(const std::vector<MeasuredStep>& steps);

}  // namespace heterog::runtime

// Records of a run: when the tasks of a plan ran, over all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "compiler/plan.h"
#include "runtime/exec/worker.h"
#include "runtime/program/program.h"

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
Nanoseconds clock_offset(comm::Transport& transport);
// The records of all ranks, on every rank. All ranks call it together.
IdVector<DeviceId, RankRecord> gather_records(const Job& job, const RankRecord& own,
                                              comm::Transport& transport);

}  // namespace heterog::runtime

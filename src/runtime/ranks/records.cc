// Puts the records of ranks together.
#include "runtime/ranks/records.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/check.h"
#include "runtime/kernels/numbers.h"

namespace heterog::runtime {

namespace {

constexpr int kRoundTrips = 20;

Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

MeasuredStep merge_records(const Job& job, const compiler::Plan& plan,
                           const IdVector<DeviceId, RankRecord>& records) {
  constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::min();
  MeasuredStep step;
  step.begin.assign(plan.task_count(), kNever);
  step.end.assign(plan.task_count(), kNever);
  Nanoseconds first = std::numeric_limits<Nanoseconds>::max();
  for (const RankRecord& record : records) first = std::min(first, record.start);
  for (DeviceId device : id_range<DeviceId>(records.size())) {
    const RankRecord& record = records[device];
    const Program& program = job.programs[device];
    ENSURE(record.spans.size() == program.instructions.size());
    step.duration = std::max(step.duration, record.start + record.duration - first);
    for (InstructionId id : id_range<InstructionId>(program.instructions.size())) {
      const Instruction& instruction = program.instructions[id];
      const Span& span = record.spans[id];
      Nanoseconds& begin = step.begin[instruction.task];
      Nanoseconds& end = step.end[instruction.task];
      begin = std::max(begin, record.start + span.begin - first);
      // What is sent has arrived when the receiver has it; a sender may be let go earlier.
      if (instruction.queue == Queue::kSend && end != kNever) continue;
      end = instruction.queue == Queue::kReceive ? record.start + span.end - first
                                                 : std::max(end, record.start + span.end - first);
    }
  }
  for (TaskId task : plan.task_ids()) {
    if (step.begin[task] == kNever) step.begin[task] = 0;  // nobody runs it
    step.end[task] = std::max(step.end[task], step.begin[task]);
  }
  return step;
}

Nanoseconds clock_offset(comm::Transport& transport) {
  Nanoseconds best = 0;
  Nanoseconds shortest = std::numeric_limits<Nanoseconds>::max();
  for (int i = 0; i < kRoundTrips; ++i) {
    const Nanoseconds before = now();
    const auto clocks = transport.gather_all(at::full({1}, before, at::kLong));
    const Nanoseconds after = now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = clocks[0].item<std::int64_t>() - (before + after) / 2;
  }
  return best;
}

IdVector<DeviceId, RankRecord> gather_records(const Job& job, const RankRecord& own,
                                              comm::Transport& transport) {
  std::size_t longest = 0;
  for (const Program& program : job.programs) {
    longest = std::max(longest, program.instructions.size());
  }
  const at::Tensor packed = at::zeros({static_cast<std::int64_t>(2 + 2 * longest)}, at::kLong);
  std::int64_t* numbers = packed.data_ptr<std::int64_t>();
  numbers[0] = own.start;
  numbers[1] = own.duration;
  for (InstructionId id : id_range<InstructionId>(own.spans.size())) {
    numbers[2 + 2 * id.value()] = own.spans[id].begin;
    numbers[3 + 2 * id.value()] = own.spans[id].end;
  }
  IdVector<DeviceId, RankRecord> records;
  for (const at::Tensor& other : transport.gather_all(packed)) {
    const std::int64_t* theirs = numbers_of<std::int64_t>(other);
    RankRecord record{.start = theirs[0], .duration = theirs[1]};
    const Program& program = job.programs[DeviceId(records.size())];
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      record.spans.push_back({theirs[2 + 2 * i], theirs[3 + 2 * i]});
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace heterog::runtime

// Puts the records of ranks together, and beside the predictions.
#include "runtime/measurement.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "base/check.h"
#include "operators/facts.h"
#include "runtime/median.h"

namespace heterog::runtime {

using compiler::TaskKind;

namespace {

constexpr int kRoundTrips = 20;

Nanoseconds now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string family_text(operators::Family family) {
  using operators::Family;
  switch (family) {
    case Family::kMatMul:
    case Family::kMatMulAdd:
      return "matrix products";
    case Family::kConvolution:
    case Family::kConvolutionBackward:
      return "convolutions";
    case Family::kBatchNorm:
    case Family::kBatchNormBackward:
    case Family::kLayerNorm:
    case Family::kLayerNormBackward:
      return "normalisations";
    case Family::kPooling:
    case Family::kPoolingBackward:
      return "poolings";
    case Family::kSoftmax:
      return "softmax";
    case Family::kGather:
    case Family::kScatterAdd:
    case Family::kIndexedLoss:
    case Family::kIndexedLossBackward:
      return "lookups";
    default:
      return "elementwise and copies";
  }
}

std::string class_of(const Job& job, const compiler::Plan& plan, TaskId task) {
  const cluster::Cluster& cluster = *job.problem->cluster;
  const auto name = [&](DeviceId device) { return cluster.device(device).name; };
  switch (plan.kind[task]) {
    case TaskKind::kCompute:
      return fmt::format("{} on {}", family_text(job.problem->graph->facts(plan.op[task]).family),
                         name(plan.device[task]));
    case TaskKind::kUpdate:
      return fmt::format("updates on {}", name(plan.device[task]));
    case TaskKind::kMerge:
    case TaskKind::kSum:
    case TaskKind::kAccumulate:
      return fmt::format("sums and merges on {}", name(plan.device[task]));
    case TaskKind::kAllReduce:
    case TaskKind::kReduceScatter:
    case TaskKind::kAllGather: {
      std::string members;
      for (DeviceId device : plan.participants[task]) {
        members += (members.empty() ? "" : ", ") + name(device);
      }
      return fmt::format("{} over {}", compiler::task_kind_name(plan.kind[task]), members);
    }
    default:
      return fmt::format("{} -> {}", name(plan.peer[task]), name(plan.device[task]));
  }
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

Nanoseconds clock_offset(Transport& transport) {
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
                                              Transport& transport) {
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
    const std::int64_t* theirs = other.const_data_ptr<std::int64_t>();
    RankRecord record{.start = theirs[0], .duration = theirs[1]};
    const Program& program = job.programs[DeviceId(records.size())];
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      record.spans.push_back({theirs[2 + 2 * i], theirs[3 + 2 * i]});
    }
    records.push_back(std::move(record));
  }
  return records;
}

IdVector<TaskId, Nanoseconds> typical_durations(const std::vector<MeasuredStep>& steps) {
  ENSURE(!steps.empty());
  std::vector<double> totals;
  totals.reserve(steps.size());
  for (const MeasuredStep& step : steps) totals.push_back(static_cast<double>(step.duration));
  const std::vector<std::size_t> kept = middle_half(totals);
  IdVector<TaskId, Nanoseconds> durations(steps.front().begin.size());
  for (TaskId task : id_range<TaskId>(durations.size())) {
    Nanoseconds total = 0;
    for (std::size_t i : kept) total += steps[i].end[task] - steps[i].begin[task];
    durations[task] = total / static_cast<Nanoseconds>(kept.size());
  }
  return durations;
}

std::vector<Drift> drift(const Job& job, const compiler::Plan& plan,
                         const std::vector<MeasuredStep>& steps) {
  const IdVector<TaskId, Nanoseconds> measured = typical_durations(steps);
  std::map<std::string, Drift> by_class;
  for (TaskId task : plan.task_ids()) {
    const bool runs = plan.kind[task] != TaskKind::kOverhead && plan.duration[task] > 0;
    if (!runs) continue;  // an alias
    Drift& drift = by_class[class_of(job, plan, task)];
    ++drift.tasks;
    drift.predicted_seconds += to_seconds(plan.duration[task]);
    drift.measured_seconds += to_seconds(measured[task]);
  }
  std::vector<Drift> rows;
  for (auto& [what, drift] : by_class) {
    drift.what = what;
    rows.push_back(drift);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Drift& a, const Drift& b) {
    return a.measured_seconds > b.measured_seconds;
  });
  return rows;
}

}  // namespace heterog::runtime

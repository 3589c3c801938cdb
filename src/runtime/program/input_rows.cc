// Looks for cuts of inputs in the ranks' instructions.
#include "runtime/program/input_rows.h"

#include <algorithm>
#include <set>
#include <utility>

namespace heterog::runtime {

namespace {

// What one body reads: an input is loaded once, and then cut for each who reads a slice.
void add_reads(const graph::ModelGraph& graph, std::int64_t batch, const Program& program,
               const Instruction& instruction, std::vector<SampleRange>& read) {
  std::set<Register> inputs;
  for (const BodyStep& step : instruction.body) {
    if (step.kind == BodyStep::Kind::kLoad) {
      const Slot& slot = program.slots[step.slot];
      if (slot.kind == Slot::Kind::kInput && has_samples(graph, slot.tensor)) {
        inputs.insert(step.out.front());
      }
      continue;
    }
    for (const Register in : step.in) {
      if (!inputs.contains(in)) continue;
      const bool cut = step.kind == BodyStep::Kind::kCut;
      read.push_back(cut ? SampleRange{step.cut.begin, step.cut.begin + step.cut.count}
                         : SampleRange{0, batch});
    }
  }
  for (const Register value : instruction.values) {  // what is sent as it is
    if (inputs.contains(value)) read.push_back({0, batch});
  }
}

std::vector<SampleRange> joined(std::vector<SampleRange> read) {
  std::erase_if(read, [](const SampleRange& one) { return one.begin == one.end; });
  std::sort(read.begin(), read.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  std::vector<SampleRange> result;
  for (const SampleRange& one : read) {
    if (!result.empty() && one.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, one.end);
    } else {
      result.push_back(one);
    }
  }
  return result;
}

}  // namespace

bool has_samples(const graph::ModelGraph& graph, TensorId input) {
  const auto shape = graph.shape(input);
  return std::any_of(shape.begin(), shape.end(),
                     [](const graph::Affine& size) { return !size.constant(); });
}

std::vector<SampleRange> samples_read(const Job& job, const std::vector<DeviceId>& ranks) {
  std::vector<SampleRange> read;
  for (const DeviceId rank : ranks) {
    const Program& program = job.programs[rank];
    for (const Instruction& instruction : program.instructions) {
      add_reads(*job.problem->graph, job.problem->batch, program, instruction, read);
    }
  }
  return joined(std::move(read));
}

}  // namespace heterog::runtime

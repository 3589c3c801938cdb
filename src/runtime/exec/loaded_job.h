// A job made ready to run on one device: its operators prepared, a place for each of its values.
#pragma once

#include <optional>
#include <vector>

#include "comm/transport.h"
#include "runtime/exec/exchange.h"
#include "runtime/exec/run_body.h"
#include "runtime/exec/streams.h"
#include "runtime/exec/worker_types.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

struct LoadedJob {
  // All of them outlive it. Throws as BodyRunner does.
  LoadedJob(const Job& one_job, DeviceId device, comm::Transport& transport,
            CompressionState& compression, const WorkerOptions& options, bool in_lanes)
      : job(one_job),
        program(job.programs[device]),
        slots(program.slots.size()),
        exchange(job, program, transport, slots.value, compression,
                 {.device = options.device, .floats = options.floats}),
        waits(program.instructions.size()),
        spans(options.record ? program.instructions.size() : 0) {
    if (!options.device.is_cpu()) {
      streams.emplace(program, QueueStreams::Options{.device = options.device,
                                                     .streams = options.streams,
                                                     .record = options.record});
    }
    bodies.emplace(job, program, options, slots, streams ? &*streams : nullptr);
    for (InstructionId id : id_range<InstructionId>(program.instructions.size())) {
      const std::size_t line = line_of(id, in_lanes);
      if (lines.size() <= line) lines.resize(line + 1);
      lines[line].push_back(id);
      lines_of.push_back(line);
    }
  }

  // Queues first, each with its first lane; then further lanes, to and from peers by turns.
  std::size_t line_of(InstructionId id, bool in_lanes) const {
    const Instruction& instruction = program.instructions[id];
    const auto queue = static_cast<std::size_t>(instruction.queue);
    if (!in_lanes || instruction.lane == 0) return queue;
    const bool comes = instruction.queue == Queue::kReceive;
    return kQueueCount + 2 * (std::size_t{instruction.lane} - 1) + (comes ? 1 : 0);
  }
  static Queue queue_of(std::size_t line) {
    if (line < kQueueCount) return static_cast<Queue>(line);
    return (line - kQueueCount) % 2 == 1 ? Queue::kReceive : Queue::kSend;
  }
  // Null: the job does not touch the tensor here.
  at::Tensor* outside(TensorId tensor) {
    const SlotId slot = program.slot_of[tensor];
    return slot.valid() ? &slots.value[slot] : nullptr;
  }

  // Before a step.
  void reset() {
    for (InstructionId id : id_range<InstructionId>(program.instructions.size())) {
      waits[id].left.store(program.instructions[id].waits_for, std::memory_order_relaxed);
    }
    for (SlotId slot : id_range<SlotId>(program.slots.size())) {
      slots.readers[slot].left.store(program.slots[slot].readers, std::memory_order_relaxed);
    }
  }
  // After it.
  void drop_inputs() {
    for (SlotId slot : id_range<SlotId>(program.slots.size())) {
      if (program.slots[slot].kind != Slot::Kind::kResident) slots.value[slot].reset();
    }
  }

  const Job& job;
  const Program& program;
  std::optional<QueueStreams> streams;  // of a device that has some; gone after the values
  SlotValues slots;
  std::optional<BodyRunner> bodies;
  Exchange exchange;
  IdVector<InstructionId, SlotValues::Counter> waits;
  // What a thread works off, in the order of dispatch: a queue, or a lane of one.
  std::vector<std::vector<InstructionId>> lines;
  IdVector<InstructionId, std::size_t> lines_of;  // its line
  IdVector<InstructionId, Span> spans;
};

}  // namespace heterog::runtime

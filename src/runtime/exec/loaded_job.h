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
            CompressionState& compression, const WorkerOptions& options)
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
  }

  const std::vector<InstructionId>& queue(Queue which) const {
    return program.queues[static_cast<std::size_t>(which)];
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
  IdVector<InstructionId, Span> spans;
};

}  // namespace heterog::runtime

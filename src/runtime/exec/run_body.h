// Runs the bodies of instructions: operators on tensors in registers, pieces, sums, stores.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/exec/streams.h"
#include "runtime/exec/worker_types.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/fused_update.h"
#include "runtime/kernels/list_call.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// The values that a rank holds while a step runs. Every queue's thread uses its own slots: the
// waits of instructions for each other say whose they are.
struct SlotValues {
  struct Counter {
    std::atomic<std::uint32_t> left{0};
  };
  explicit SlotValues(std::size_t slots) : value(slots), readers(slots) {}
  IdVector<SlotId, at::Tensor> value;
  IdVector<SlotId, Counter> readers;  // instructions that have yet to read it in this step
};

class BodyRunner {
 public:
  // Prepares every operator. `streams`: null on devices that have none. Throws an Error
  // (kVerification) if an operator cannot be prepared.
  BodyRunner(const Job& job, const Program& program, const WorkerOptions& options,
             SlotValues& values, const QueueStreams* streams);

  void begin_step(std::int64_t number);
  // By the thread of its queue. Returns what it leaves in the registers that are the instruction's
  // values.
  std::vector<at::Tensor> run(InstructionId id);
  // Values kept from the step that has ended, for whoever asked for them; and how many operators
  // wrote over an operand in it.
  std::vector<at::Tensor> take_captures();
  std::int64_t overwrites() const { return overwrites_.load(); }

 private:
  using Registers = std::vector<at::Tensor>;
  void prepare(const Instruction& instruction, const BodyStep& step, std::int64_t samples);
  bool is_given_away(const at::Tensor& value, SlotId slot) const;
  void take(const BodyStep& step, std::size_t call, Registers& registers, Queue queue);
  bool may_overwrite(const BodyStep& step, const OperatorCall& call,
                     const Registers& registers) const;
  bool may_overwrite_statistics(const BodyStep& step, const OperatorCall& call,
                                const Registers& registers) const;
  void run_call(const BodyStep& step, const OperatorCall& call, Registers& registers, Queue queue);
  void run_random(const BodyStep& step, const OperatorCall& call, Registers& registers) const;
  using AnyListCall = std::variant<FusedUpdate, ListCall>;
  void run_lists(const BodyStep& step, const AnyListCall& call, Registers& registers, Queue queue);
  void run_attention(const BodyStep& step, Registers& registers) const;

  const Job& job_;
  const graph::ModelGraph& graph_;
  const Program& program_;
  const WorkerOptions& options_;
  SlotValues& slots_;
  const QueueStreams* streams_;
  std::vector<OperatorCall> calls_;
  std::vector<AnyListCall> list_calls_;
  // Parallel to the bodies: indices into calls_, or list_calls_.
  IdVector<InstructionId, std::vector<std::size_t>> calls_of_;
  std::int64_t step_ = 0;
  std::vector<at::Tensor> captures_;
  std::atomic<std::int64_t> overwrites_{0};  // in this step
};

// "rank 1 (host/gpu1), task 12, which receives 'relu'": for messages.
std::string describe_task(const Job& job, DeviceId device, const Instruction& instruction);

// One line of what PyTorch, or whoever threw it, says.
std::string reason_of(const std::exception& error);

}  // namespace heterog::runtime

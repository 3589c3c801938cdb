// Runs one device's part of a plan, step by step.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/transport.h"
#include "runtime/exec/worker_types.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// One rank. A worker runs the instructions of its device's program in four queues, each worked off
// by a thread of its own, in the order of dispatch; messages over capped connections have a thread
// for each lane (program/lanes.h):
//
//   Worker worker(job, device, transport, {.threads = 2});
//   for (TensorId tensor : worker.residents()) worker.set_resident(tensor, values.at(tensor));
//   for (std::int64_t step = 1; step <= steps; ++step) results.push_back(worker.step(step,
//   inputs));
//
//   compute, send, receive, collective     a queue: its instructions, and how many of other queues
//                                          the one at its head still waits for
//   slots                                  what stays (residents), the step's inputs, buffers: each
//                                          with the instructions that have yet to read it
//
// An instruction is a body (BodyRunner: operators on registers, loaded from and stored to slots)
// and then an action (Exchange: what is sent, received or reduced). On a device with streams the
// threads only launch (QueueStreams).
class Worker {
 public:
  // Prepares every operator. Throws an Error (kVerification) if one cannot be.
  Worker(const Job& job, DeviceId device, comm::Transport& transport, const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Makes another job ready, one of other samples whose ranks keep the same tensors or fewer
  // (compiler/rescale.h); `job` outlives the worker. Returns its number, for step(); that of the
  // constructor is 0.
  std::size_t add(const Job& job);

  // Tensors that stay between steps: parameters, optimizer state, buffers that this device reads or
  // writes, ascending. All must be given before the first step; they are copied. They are given
  // whole, also where the device keeps some rows of one alone (own_part).
  const std::vector<TensorId>& residents() const;
  void set_resident(TensorId tensor, const at::Tensor& value);
  // As the last step that was launched leaves it, the rows that are kept; valid until the next one.
  at::Tensor resident(TensorId tensor) const;

  // Runs a step of a job; `number` counts from 1. `next`: the inputs of the step after it, of the
  // same job, or null. They are copied once this step is launched, while the device computes, and
  // taken by that step if it is given the same tensors, which nobody changes until then. Inputs
  // that lie on the rank's device are taken as they are. If anything fails, here or at a peer, the
  // transport is aborted and an Error (kVerification) of one line names this rank, its device and
  // the task.
  StepResult step(std::int64_t number, const StepInputs& inputs, std::size_t job = 0,
                  const StepInputs* next = nullptr);
  // The same in two calls: on a device with streams, launch() does not wait for it, and one more
  // step may be launched before finish(), which waits for the earlier of the two. On a CPU, and of
  // a worker that records, a step has ended once the next is launched.
  void launch(std::int64_t number, const StepInputs& inputs, std::size_t job = 0,
              const StepInputs* next = nullptr);
  StepResult finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace heterog::runtime

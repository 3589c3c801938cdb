// All ranks of a job as threads of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "comm/local_transport.h"
#include "runtime/exec/worker.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

class Team {
 public:
  // `options`: one a device.
  Team(const Job& job, const IdVector<DeviceId, WorkerOptions>& options);

  Worker& worker(DeviceId device) { return *workers_[device]; }
  const Job& job() const { return job_; }
  // On every device that keeps the tensor.
  void set_resident(TensorId tensor, const at::Tensor& value);
  // Makes another job ready on all devices, as Worker::add() does; its number, for step().
  std::size_t add(const Job& job);
  // One step of a job on all devices. Of several failures, that of the lowest rank is thrown, once
  // all have ended; after a failure the team cannot go on.
  IdVector<DeviceId, StepResult> step(std::int64_t number, const StepInputs& inputs,
                                      std::size_t job = 0);

 private:
  const Job& job_;
  comm::LocalHub hub_;
  IdVector<DeviceId, std::unique_ptr<comm::Transport>> ends_;
  std::vector<std::unique_ptr<comm::Transport>>
      staged_;  // over the ends of ranks that are not on CPUs
  IdVector<DeviceId, std::unique_ptr<Worker>> workers_;
  ThreadPool threads_;
};

}  // namespace heterog::runtime

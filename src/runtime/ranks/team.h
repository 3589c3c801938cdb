// All ranks of a job as threads of this process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/local_transport.h"
#include "runtime/exec/worker.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// Each rank has a thread of its own, the same in every step: what libraries keep by thread
// (handles, plans of convolutions, threads of loops) is made once. A single rank runs in the
// calling thread.
class Team {
 public:
  // `options`: one a device.
  Team(const Job& job, const IdVector<DeviceId, WorkerOptions>& options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  Worker& worker(DeviceId device) { return *workers_[device]; }
  const Job& job() const { return job_; }
  // On every device that keeps the tensor.
  void set_resident(TensorId tensor, const at::Tensor& value);
  // Makes another job ready on all devices, as Worker::add() does; its number, for step().
  std::size_t add(const Job& job);
  // One step of a job on all devices; `next` as for a worker. Of several failures, that of the
  // lowest rank is thrown, once all have ended; after a failure the team cannot go on.
  IdVector<DeviceId, StepResult> step(std::int64_t number, const StepInputs& inputs,
                                      std::size_t job = 0, const StepInputs* next = nullptr);
  // The same in two calls, as those of a worker.
  void launch(std::int64_t number, const StepInputs& inputs, std::size_t job = 0,
              const StepInputs* next = nullptr);
  IdVector<DeviceId, StepResult> finish();

 private:
  struct Round {  // a step that all ranks take
    std::int64_t number = 0;
    const StepInputs* inputs = nullptr;
    std::size_t job = 0;
    const StepInputs* next = nullptr;
  };
  void run(DeviceId rank, const Round& round) noexcept;
  void serve(DeviceId rank);
  void end_threads();

  const Job& job_;
  comm::LocalHub hub_;
  IdVector<DeviceId, std::unique_ptr<comm::Transport>> ends_;
  std::vector<std::unique_ptr<comm::Transport>> over_ends_;  // of ranks that are not on CPUs
  IdVector<DeviceId, std::unique_ptr<Worker>> workers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Round round_;
  std::uint64_t rounds_ = 0;
  std::size_t busy_ = 0;
  bool ending_ = false;
  IdVector<DeviceId, std::exception_ptr> failures_;  // of the last round
  std::vector<std::thread> threads_;                 // one a rank, if there are several
};

}  // namespace heterog::runtime

// The ranks of a job that this process runs, all as threads or one among processes, behind one
// face: how they start a step together, and how each comes to know what all of them report.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "comm/transport.h"
#include "runtime/exec/worker.h"
#include "runtime/program/program.h"
#include "runtime/ranks/records.h"

namespace heterog::runtime {

struct StepReport {
  double loss = 0;                       // of the whole batch
  double seconds = 0;                    // of the slowest rank
  std::optional<MeasuredStep> measured;  // if the workers record
  std::vector<RankMemory> memory;        // of each rank; zeros unless the workers count it
};

// The loss of a step is no finite number. Every process throws it, once all ranks have done the
// step: another can follow.
class LossNotFinite : public Error {
 public:
  using Error::Error;
};

// The ranks of a job in this process. "Of all processes": all of them call it, in the same order.
class Ranks {
 public:
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // The one that they were made for.
  const Job& job() const { return *jobs_.front().job; }
  // Those that this process runs, ascending, their workers, and what each got out of the last step.
  const std::vector<DeviceId>& here() const { return here_; }
  virtual Worker& worker(DeviceId rank) = 0;
  const StepResult& result(DeviceId rank) const;
  // One process speaks for all: that of rank 0.
  bool speaks() const { return here_.front() == DeviceId(0); }

  // Whether any rank keeps the tensor between steps.
  bool keeps(TensorId tensor) const { return keeper_[tensor].valid(); }
  // On every rank that keeps it: the value that the process of rank 0 gives. Of all processes.
  virtual void set(TensorId tensor, const at::Tensor& value) = 0;
  // As the last step left it: on every process, or on that of rank 0 (undefined on the others). Of
  // all processes.
  virtual at::Tensor get(TensorId tensor) = 0;
  virtual at::Tensor get_where_it_speaks(TensorId tensor) = 0;

  // Makes another job ready, one of other samples (compiler/rescale.h), whose ranks keep the same
  // tensors or fewer; both outlive the ranks. Returns its number, for step(); that of the job that
  // they were made for is 0.
  std::size_t add(const Job& job, const compiler::Plan& plan);

  // The contents of inputs that have samples: all samples, alike in all processes, or values where
  // the ranks that are here read (runtime/program/input_rows.h), and anything elsewhere.
  enum class Given : std::uint8_t { kWhole, kOwnRows };
  // One step of a job; `next`: the inputs of the step after it, of the same job, to copy meanwhile
  // (Worker::step), or null. The report is of all ranks, in every process. Throws an input error if
  // processes are given other inputs in the first step, other numbers of samples in any, or have
  // made other jobs of them; and an Error (kVerification) that names the rank if one fails, and
  // LossNotFinite if its part of the loss is not finite. Of all processes.
  StepReport step(std::int64_t number, const StepInputs& inputs, std::size_t job = 0,
                  Given given = Given::kWhole, const StepInputs* next = nullptr);
  // The same in two calls: one more step may be launched before finish(), which is of the earlier
  // of the two (Worker::launch). What is set or got meanwhile is of the step launched last.
  void launch(std::int64_t number, const StepInputs& inputs, std::size_t job = 0,
              Given given = Given::kWhole, const StepInputs* next = nullptr);
  StepReport finish();
  // The value of an output of the graph of the step that was finished last, other than the loss,
  // for the whole batch. Of all processes.
  at::Tensor output(TensorId tensor);
  // The tensors that the processes give, in the order of ranks; all of one shape and dtype. Of all
  // processes.
  virtual std::vector<at::Tensor> gather(const at::Tensor& own) = 0;
  // Waits for all processes; the largest number that any of them gives. Of all processes.
  int meet(int own);

 protected:
  Ranks(const Job& job, const compiler::Plan& plan, std::vector<DeviceId> here);

  virtual void load(const Job& job) = 0;
  virtual void start(std::int64_t number, const StepInputs& inputs, std::size_t job, Given given,
                     const StepInputs* next) = 0;
  // A result for each rank that is here.
  virtual std::vector<StepResult> end() = 0;
  // When the tasks ran on all ranks, by the clock of rank 0; nothing if the workers do not record.
  // All processes call it.
  virtual std::optional<IdVector<DeviceId, RankRecord>> records() = 0;

  struct JobAndPlan {
    const Job* job = nullptr;
    const compiler::Plan* plan = nullptr;
  };
  std::vector<JobAndPlan> jobs_;  // by their numbers
  struct Launched {
    std::int64_t number = 0;
    std::size_t job = 0;
  };
  std::deque<Launched> launched_;
  std::size_t last_job_ = 0;  // of the step that was finished last
  const std::vector<DeviceId> here_;
  std::vector<StepResult> results_;      // parallel to `here_`
  IdVector<TensorId, DeviceId> keeper_;  // the lowest rank that keeps it
};

// `plan`: that of the job; both outlive the ranks. `workers`: one a device.
std::unique_ptr<Ranks> ranks_in_threads(const Job& job, const compiler::Plan& plan,
                                        const IdVector<DeviceId, WorkerOptions>& workers);
// This process as one rank; `transport` outlives it.
struct OwnRank {
  DeviceId rank;
  comm::Transport& transport;
};
std::unique_ptr<Ranks> rank_among_processes(const Job& job, const compiler::Plan& plan,
                                            const OwnRank& own, const WorkerOptions& worker);

}  // namespace heterog::runtime

// The ranks of a job that this process runs, all as threads or one among processes, behind one
// face.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loading/plan_files.h"
#include "runtime/program.h"
#include "runtime/worker.h"

namespace heterog::client {

struct RanksOptions {
  loading::ProblemOptions files;
  std::string plan;
  int threads = 0;  // of one operator; 0: an equal share of this host's processors
  std::uint64_t seed = 0;
  std::map<std::string, int> slow;  // device → how often it does its work
  bool any_device = false;
  int earlier = 0;  // jobs that these processes have run before
  std::chrono::milliseconds timeout{300'000};
  std::string terms;  // whatever else must be the same on all ranks
};

struct StepReport {
  double loss = 0;
  double seconds = 0;  // of the slowest rank
};

class Ranks {
 public:
  virtual ~Ranks() = default;

  const loading::LoadedPlan& loaded() const { return loaded_; }
  const graph::ModelGraph& graph() const { return *loaded_.problem->graph; }
  virtual int rank() const = 0;

  // Whether any rank keeps the tensor between steps.
  bool keeps(TensorId tensor) const { return keeper_[tensor].valid(); }
  virtual void set(TensorId tensor, const at::Tensor& value) = 0;
  // As the last step left it. Every rank asks for the same tensors in the same order.
  virtual at::Tensor get(TensorId tensor) = 0;
  virtual StepReport step(std::int64_t number, const runtime::StepInputs& inputs) = 0;
  // Waits for all ranks; the largest number that any of them gives.
  virtual int meet(int own) = 0;
  // The last call of every rank.
  virtual void finish() = 0;

 protected:
  Ranks(const RanksOptions& options, loading::LoadedPlan loaded);
  const std::string& device_name(DeviceId rank) const;
  // The loss of all, from each rank's part of it; the error names the rank whose part is no number.
  double whole_loss(std::int64_t step, const std::vector<std::vector<double>>& parts) const;

  loading::LoadedPlan loaded_;
  runtime::Job job_;
  IdVector<TensorId, DeviceId> keeper_;  // the lowest rank that keeps it
};

std::unique_ptr<Ranks> make_threads(const RanksOptions& options);
// This process as the rank that its environment says. Returns once all ranks have come.
std::unique_ptr<Ranks> make_one_rank(const RanksOptions& options);

}  // namespace heterog::client

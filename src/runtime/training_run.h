// Step after step of a job on random data, with its ranks as threads or as one rank among
// processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/measurement.h"
#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/worker.h"

namespace heterog::runtime {

struct StepReport {
  double loss = 0;
  double seconds = 0;                    // of the slowest rank
  std::optional<MeasuredStep> measured;  // if the workers record
};

class TrainingRun {
 public:
  virtual ~TrainingRun() = default;
  // Throws an Error (kVerification) that names the rank if anything fails or the loss is not
  // finite.
  virtual StepReport step(std::int64_t number) = 0;
  // After a step; returns once the file is whole.
  virtual void save(const std::string& path, std::int64_t step) = 0;
  // Before the first step; returns the step that the file was saved after, 0 if there is no file.
  // Throws an input error if it does not fit, or if ranks see different ones.
  virtual std::int64_t load(const std::string& path) = 0;
};

// Parameters are of the workers' seed, each step's data of the seed and the step's number: the same
// on every rank, and in threads and processes. `workers`: one a device.
// `plan`: that of the job.
std::unique_ptr<TrainingRun> run_in_threads(const Job& job, const compiler::Plan& plan,
                                            const IdVector<DeviceId, WorkerOptions>& workers);
// This rank; the reports are of all, on every rank.
std::unique_ptr<TrainingRun> run_rank(const Job& job, const compiler::Plan& plan, DeviceId rank,
                                      Transport& transport, const WorkerOptions& worker);

}  // namespace heterog::runtime

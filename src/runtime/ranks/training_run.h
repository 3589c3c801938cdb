// Step after step of a job on random data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/ranks/job_ranks.h"

namespace heterog::runtime {

// Parameters are of the workers' seed, each step's data of the seed and the step's number: the same
// on every rank, and in threads and processes.
class TrainingRun {
 public:
  // `options`: those of the workers. Their ranks begin with random parameters.
  TrainingRun(std::unique_ptr<Ranks> ranks, const WorkerOptions& options);

  StepReport step(std::int64_t number);
  // The same in two calls. Whether one more step should be launched before finish(), which is of
  // the earlier of the two; alike in all processes.
  bool goes_ahead() const { return goes_ahead_; }
  void launch(std::int64_t number);
  StepReport finish() { return ranks_->finish(); }
  // After a step; returns once the file is whole.
  void save(const std::string& path, std::int64_t step);
  // Before the first step; returns the step that the file was saved after, 0 if there is no file.
  // Throws an input error if it does not fit, or if processes see different ones.
  std::int64_t load(const std::string& path);

 private:
  const std::unique_ptr<Ranks> ranks_;
  const std::uint64_t seed_;
  const Floats floats_;
  const bool
      ahead_;  // a GPU copies the next inputs while it computes; on CPUs they only take memory
  bool goes_ahead_ = false;
  std::int64_t next_number_ = 0;  // of the step that is given next_; 0: none
  StepInputs next_;
};

}  // namespace heterog::runtime

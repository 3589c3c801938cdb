// The ranks of a plan file that this process runs, all as threads or one among processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/join.h"
#include "loading/plan_files.h"
#include "runtime/program/input_rows.h"
#include "runtime/ranks/job_ranks.h"

namespace heterog::client {

struct RanksOptions {
  loading::ProblemOptions files;
  std::vector<std::string> more_graphs;  // of the same step on inputs of other sizes
  std::string plan;
  int threads = 0;  // of one operator; 0: an equal share of this host's processors
  std::uint64_t seed = 0;
  std::map<std::string, int> slow;  // device → how often it does its work
  bool any_device = false;
  int earlier = 0;  // jobs that these processes have run before
  std::chrono::milliseconds timeout{300'000};
  std::string transport = comm::transport_names().front();
  std::string terms;  // whatever else must be the same on all ranks
};

// A device of the plan, and what runs it.
struct PlannedDevice {
  std::string name;
  std::string model;
  std::string runs_on;  // "cpu", "cuda:0" of its process
};

class Ranks {
 public:
  // With `one_rank`, this process is the rank that its environment says, and all others have come
  // once it is made; else all ranks are threads of this process.
  Ranks(const RanksOptions& options, bool one_rank);

  const loading::LoadedPlan& loaded() const { return loaded_; }
  const graph::ModelGraph& graph() const { return *loaded_.problem->graph; }
  // The lowest that this process runs.
  int rank() const { return static_cast<int>(ranks_->here().front().value()); }
  // In the order of ranks.
  const std::vector<PlannedDevice>& devices() const { return devices_; }
  runtime::Ranks& of_job() { return *ranks_; }
  const runtime::Ranks& of_job() const { return *ranks_; }

  // The form of a step: its graph (0: the plan's own, then those of `more_graphs`) and its samples.
  struct Form {
    std::int32_t graph = 0;
    std::int64_t samples = 0;
    friend auto operator<=>(const Form&, const Form&) = default;
  };
  // Before a step of such inputs; their graph. Another form than the plan's own runs the plan cut
  // anew (compiler/rescale.h), which is made here the first time. After an input error of this one,
  // other steps can follow.
  const graph::ModelGraph& prepare(const Form& form);
  void launch(std::int64_t number, const runtime::StepInputs& inputs, const Form& form,
              runtime::Ranks::Given given);
  // Of the earliest step that was launched and not finished.
  runtime::StepReport finish_step();
  std::size_t launched() const { return launched_.size(); }
  // The value of an output of the graph of the step finished last, and the form of that step.
  at::Tensor output(TensorId tensor) { return ranks_->output(tensor); }
  const std::optional<Form>& last_step() const { return last_step_; }
  const graph::ModelGraph& graph_of(const Form& form) const {
    return *steps_[static_cast<std::size_t>(form.graph)].problem->graph;
  }
  // The samples that this process's ranks read of a form that has been prepared.
  std::vector<runtime::SampleRange> samples_read(const Form& form) const;
  // The last call of every process.
  void finish();

 private:
  // A graph of the step, in a problem of the plan's batch.
  struct Step {
    std::shared_ptr<const cost::Problem> problem;
    std::string file;
    std::int64_t smallest_batch = 1;  // whether it holds for larger ones, who calls finds out
  };
  // The plan for another form.
  struct Other {
    compiler::Plan plan;
    runtime::Job job;
    std::optional<std::size_t> number = {};  // of the job, once the ranks have it
  };
  bool is_own(const Form& form) const;

  loading::LoadedPlan loaded_;
  std::vector<Step> steps_;
  runtime::Job job_;
  std::map<Form, Other> others_;  // the ranks refer to them
  std::deque<Form> launched_;
  std::optional<Form> last_step_;  // that was finished
  launch::Joined joined_;          // to no transport where ranks are threads
  std::unique_ptr<runtime::Ranks> ranks_;
  std::vector<PlannedDevice> devices_;
};

}  // namespace heterog::client

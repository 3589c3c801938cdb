// Makes the data of each step.
#include "runtime/ranks/training_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/exec/random_data.h"
#include "runtime/ranks/checkpoint.h"

namespace heterog::runtime {

TrainingRun::TrainingRun(std::unique_ptr<Ranks> ranks, const WorkerOptions& options)
    : ranks_(std::move(ranks)),
      seed_(options.seed),
      floats_(options.floats),
      ahead_(!options.device.is_cpu()) {
  each_random_resident(*ranks_->job().problem->graph, seed_, floats_,
                       [&](TensorId id, const at::Tensor& value) {
                         for (const DeviceId rank : ranks_->here()) {
                           Worker& worker = ranks_->worker(rank);
                           if (std::ranges::binary_search(worker.residents(), id))
                             worker.set_resident(id, value);
                         }
                       });
  // Steps that are recorded come one after the other.
  goes_ahead_ = !options.record && ranks_->meet(ahead_ ? 1 : 0) != 0;
}

StepReport TrainingRun::step(std::int64_t number) {
  launch(number);
  return finish();
}

void TrainingRun::launch(std::int64_t number) {
  const cost::Problem& problem = *ranks_->job().problem;
  const auto made_for = [&](std::int64_t step) {
    return random_inputs(*problem.graph, problem.batch, seed_, step, floats_);
  };
  const StepInputs inputs = next_number_ == number ? std::move(next_) : made_for(number);
  if (!ahead_) return ranks_->launch(number, inputs);
  next_ = made_for(number + 1);  // before the step, whose time counts
  next_number_ = number + 1;
  ranks_->launch(number, inputs, 0, Ranks::Given::kWhole, &next_);
}

void TrainingRun::save(const std::string& path, std::int64_t step) {
  save_checkpoint(path, *ranks_, {.step = step, .seed = seed_});
}

std::int64_t TrainingRun::load(const std::string& path) {
  std::int64_t step = 0;
  if (std::filesystem::exists(path)) step = load_checkpoint(path, *ranks_, seed_).step;
  const std::vector<at::Tensor> steps = ranks_->gather(at::full({1}, step, at::kLong));
  for (std::size_t process = 0; process < steps.size(); ++process) {
    const auto other = steps[process].item<std::int64_t>();
    VALIDATE(other == step,
             "{}: rank {} goes on after step {}, rank {} after step {}; every host needs the same "
             "file",
             path, ranks_->here().front().value(), step, process, other);
  }
  return step;
}

}  // namespace heterog::runtime

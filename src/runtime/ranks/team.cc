// Workers that meet in memory.
#include "runtime/ranks/team.h"

#include "base/check.h"
#include "comm/staged_transport.h"

namespace heterog::runtime {

Team::Team(const Job& job, const IdVector<DeviceId, WorkerOptions>& options)
    : job_(job),
      hub_(job.programs.size(), job.sets),
      threads_(static_cast<int>(job.programs.size())) {
  ENSURE(options.size() == job.programs.size());
  for (DeviceId device : id_range<DeviceId>(job.programs.size())) {
    ends_.push_back(hub_.end_of(device));
    comm::Transport* transport = ends_[device].get();
    if (!options[device].device.is_cpu()) {
      transport = staged_.emplace_back(std::make_unique<comm::StagedTransport>(*transport)).get();
    }
    workers_.push_back(std::make_unique<Worker>(job, device, *transport, options[device]));
  }
}

void Team::set_resident(TensorId tensor, const at::Tensor& value) {
  for (DeviceId device : id_range<DeviceId>(workers_.size())) {
    if (job_.programs[device].slot_of[tensor].valid()) {
      workers_[device]->set_resident(tensor, value);
    }
  }
}

std::size_t Team::add(const Job& job) {
  ENSURE(job.sets == job_.sets);
  std::size_t number = 0;
  for (const auto& worker : workers_) number = worker->add(job);
  return number;
}

IdVector<DeviceId, StepResult> Team::step(std::int64_t number, const StepInputs& inputs,
                                          std::size_t job) {
  IdVector<DeviceId, StepResult> results(workers_.size());
  threads_.run(workers_.size(), [&](int, std::size_t i) {
    results[DeviceId(i)] = workers_[DeviceId(i)]->step(number, inputs, job);
  });
  return results;
}

}  // namespace heterog::runtime

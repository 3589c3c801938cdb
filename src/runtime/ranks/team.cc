// Workers that meet in memory.
#include "runtime/ranks/team.h"

#include "base/check.h"
#include "comm/routes.h"
#include "comm/staged_transport.h"

namespace heterog::runtime {

Team::Team(const Job& job, const IdVector<DeviceId, WorkerOptions>& options)
    : job_(job), hub_(job.programs.size(), job.sets), failures_(job.programs.size()) {
  ENSURE(options.size() == job.programs.size());
  std::vector<at::Device> devices;
  for (const WorkerOptions& one : options) devices.push_back(one.device);
  for (DeviceId device : id_range<DeviceId>(job.programs.size())) {
    ends_.push_back(hub_.end_of(device));
    comm::Transport* transport = ends_[device].get();
    if (!options[device].device.is_cpu()) {
      auto& staged = *over_ends_.emplace_back(std::make_unique<comm::StagedTransport>(*transport));
      transport = over_ends_
                      .emplace_back(std::make_unique<comm::RoutedTransport>(
                          staged, *transport, comm::one_device_routes(device, job.sets, devices)))
                      .get();
    }
    workers_.push_back(std::make_unique<Worker>(job, device, *transport, options[device]));
  }
  if (workers_.size() == 1) return;
  try {
    for (DeviceId rank : id_range<DeviceId>(workers_.size())) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  } catch (...) {  // the system has no more threads
    end_threads();
    throw;
  }
}

Team::~Team() { end_threads(); }

void Team::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(DeviceId rank, const Round& round) noexcept {
  failures_[rank] = nullptr;
  try {
    workers_[rank]->launch(round.number, *round.inputs, round.job, round.next);
  } catch (...) {
    failures_[rank] = std::current_exception();
  }
}

void Team::serve(DeviceId rank) {
  std::uint64_t done = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || rounds_ > done; });
    if (ending_) return;
    done = rounds_;
    const Round round = round_;
    lock.unlock();
    run(rank, round);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
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
                                          std::size_t job, const StepInputs* next) {
  launch(number, inputs, job, next);
  return finish();
}

void Team::launch(std::int64_t number, const StepInputs& inputs, std::size_t job,
                  const StepInputs* next) {
  const Round round{number, &inputs, job, next};
  if (threads_.empty()) {
    run(DeviceId(0), round);
  } else {
    std::unique_lock lock(mutex_);
    round_ = round;
    busy_ = threads_.size();
    ++rounds_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return busy_ == 0; });
  }
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Waits for one device after the other, which needs no threads.
IdVector<DeviceId, StepResult> Team::finish() {
  IdVector<DeviceId, StepResult> results;
  std::exception_ptr failure;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    try {
      results.push_back(worker->finish());
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

}  // namespace heterog::runtime

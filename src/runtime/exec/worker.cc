// A thread for each queue, or lane of messages; tensors are dropped once their last reader has
// ended.
#include "runtime/exec/worker.h"
#include "runtime/exec/own_part.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "comm/time_slice.h"
#include "runtime/exec/loaded_job.h"
#include "runtime/kernels/host_memory.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/kernels/tensor_memory.h"

namespace heterog::runtime {

using Clock = std::chrono::steady_clock;

class Worker::State {
 public:
  State(const Job& job, DeviceId device, comm::Transport& transport, const WorkerOptions& options)
      : device_(device), transport_(transport), options_(options), compression_(options.seed) {
    const c10::DeviceGuard on_own_device(options.device);
    if (options.device.is_cpu()) {
      keep_freed_memory();
    } else {
      at::globalContext().lazyInitDevice(options.device.type());
      const graph::Tf32& tf32 = job.problem->graph->tf32();
      at::globalContext().setAllowTF32CuBLAS(options.tf32 && tf32.products);
      at::globalContext().setAllowTF32CuDNN(options.tf32 && tf32.convolutions);
    }
    if (options.count_memory) count_tensor_memory(options.device);
    const Program& program = job.programs[device];
    for (SlotId slot : id_range<SlotId>(program.slots.size())) {
      const Slot& one = program.slots[slot];
      if (one.kind != Slot::Kind::kResident) continue;
      if (program.slot_of[one.tensor] == slot) {
        residents_.push_back(one.tensor);
      } else {
        old_versions_.push_back(slot);
      }
    }
    std::sort(residents_.begin(), residents_.end());
    aside_.resize(program.slot_of.size());
    try {
      add(job);
    } catch (...) {  // the system has no more threads
      end_threads();
      throw;
    }
    now_ = jobs_.front().get();
  }

  ~State() {
    const c10::DeviceGuard on_own_device(options_.device);
    end_threads();
    try {
      if (!launched_.empty() && now_->streams) now_->streams->synchronize();
    } catch (const std::exception&) {  // whoever has not asked for the step does not hear of it
    }
    launched_.clear();
    ahead_.clear();
    jobs_.clear();
  }

  std::size_t add(const Job& job) {
    for (const Slot& slot : job.programs[device_].slots) {
      ENSURE(slot.kind != Slot::Kind::kResident ||
             std::binary_search(residents_.begin(), residents_.end(), slot.tensor));
    }
    const c10::DeviceGuard on_own_device(options_.device);
    // A device's stream of messages is one.
    const bool in_lanes = options_.device.is_cpu() && transport_.messages_side_by_side();
    jobs_.push_back(
        std::make_unique<LoadedJob>(job, device_, transport_, compression_, options_, in_lanes));
    const auto& lines = jobs_.back()->lines;
    while (sleepers_.size() < lines.size()) sleepers_.emplace_back();
    for (std::size_t line = 0; line < lines.size(); ++line) {
      Sleeper& sleeper = sleepers_[line];
      const bool is_compute = LoadedJob::queue_of(line) == Queue::kCompute;
      if (is_compute || sleeper.has_thread || lines[line].empty()) continue;
      threads_.emplace_back([this, line, done = round_] { serve(line, done); });
      sleeper.has_thread = true;
    }
    if (jobs_.back()->streams && !copier_.joinable())
      copier_ = std::thread([this] { copy_nexts(); });
    return jobs_.size() - 1;
  }

  const std::vector<TensorId>& residents() const { return residents_; }

  void set_resident(TensorId tensor, const at::Tensor& whole) {
    const c10::DeviceGuard on_own_device(options_.device);
    at::Tensor& place = place_of(tensor);
    const at::Tensor value = own_part(now_->program, tensor, whole);
    if (now_->streams) {
      at::Tensor laid = laid_as(graph().tensor(tensor), value);
      if (laid.is_alias_of(value) && laid.device() == options_.device) laid = laid.clone();
      place = now_->streams->copy_in(laid);
      return now_->streams->synchronize();
    }
    const at::Tensor own = value.to(options_.device, value.scalar_type(), false, true);
    place = laid_as(graph().tensor(tensor), own);
    for (SlotId slot : old_versions_) {
      if (now_->program.slots[slot].tensor == tensor) now_->slots.value[slot] = place.clone();
    }
  }

  at::Tensor resident(TensorId tensor) {
    const c10::DeviceGuard on_own_device(options_.device);
    const at::Tensor& value = place_of(tensor);
    return now_->streams ? now_->streams->copy_out(value) : value;
  }

  void launch(std::int64_t number, const StepInputs& inputs, std::size_t job,
              const StepInputs* next) {
    ENSURE(launched_.size() < kMostLaunched);
    const c10::DeviceGuard on_own_device(options_.device);
    failed_.store(false);
    failure_.reset();
    // Each job has streams of its own, and each step's spans are read before the next one's.
    if (!launched_.empty() && (options_.record || jobs_.at(job).get() != now_)) {
      complete(launched_.back());
      if (failure_) throw Error(ErrorKind::kVerification, *failure_);
    }
    Launched made;
    StepResult& result = made.result;
    const Clock::time_point start = begin(number, inputs, job, result);
    {
      const std::lock_guard lock(mutex_);
      start_ = start;
      busy_ = threads_.size();
      if (now_->streams) copied_next_ = next;
      ++round_;
    }
    changed_.notify_all();
    run_line(static_cast<std::size_t>(Queue::kCompute));
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return busy_ == 0; });
    }
    result.start =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count();
    result.captures = now_->bodies->take_captures();
    result.overwrites = now_->bodies->overwrites();
    if (!now_->streams) result.duration = since_start();
    if (now_->streams && !failure_) {
      try_on_device("at the end of the step",
                    [&] { made.flight = now_->streams->end(result.captures); });
    }
    if (now_->streams) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return copied_next_ == nullptr; });
    } else if (next != nullptr && !failure_) {
      copy_ahead(*next);
    }
    now_->drop_inputs();
    if (failure_) throw Error(ErrorKind::kVerification, *failure_);
    if (!now_->streams) result.spans = now_->spans;
    if (options_.count_memory) result.memory = memory();
    launched_.push_back(std::move(made));
  }

  StepResult finish() {
    ENSURE(!launched_.empty());
    const c10::DeviceGuard on_own_device(options_.device);
    Launched step = std::move(launched_.front());
    launched_.pop_front();
    complete(step);
    if (failure_) throw Error(ErrorKind::kVerification, *failure_);
    return std::move(step.result);
  }

 private:
  const graph::ModelGraph& graph() const { return *now_->job.problem->graph; }

  // After a step.
  RankMemory memory() {
    const TensorMemory counted = tensor_memory(options_.device);
    RankMemory memory{.most = counted.most, .reserved = counted.reserved};
    for (TensorId tensor : residents_) {
      const graph::TensorRole role = graph().tensor(tensor).role;
      Bytes& of_role = role == graph::TensorRole::kParameter        ? memory.parameters
                       : role == graph::TensorRole::kOptimizerState ? memory.optimizer_state
                                                                    : memory.buffers;
      of_role += static_cast<Bytes>(place_of(tensor).nbytes());
    }
    memory.optimizer_state += compression_.bytes();
    return memory;
  }

  // Of what stays.
  at::Tensor& place_of(TensorId tensor) {
    ENSURE(std::binary_search(residents_.begin(), residents_.end(), tensor));
    at::Tensor* place = now_->outside(tensor);
    return place ? *place : aside_[tensor];
  }

  // What stays goes to the places of the job that is run next. Nobody else holds it, so that it can
  // be overwritten there too.
  void go_over_to(LoadedJob& next) {
    if (&next == now_) return;
    for (TensorId tensor : residents_) {
      at::Tensor value = std::move(place_of(tensor));
      place_of(tensor).reset();
      at::Tensor* place = next.outside(tensor);
      (place ? *place : aside_[tensor]) = std::move(value);
    }
    now_ = &next;
  }

  void end_threads() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    if (copier_.joinable()) copier_.join();
  }

  // ---- a step ----

  std::string own_text() const {
    return fmt::format("rank {} ({})", device_.value(),
                       now_->job.problem->cluster->device(device_).name);
  }

  // Work of the device that is no instruction's.
  template <class Work>
  void try_on_device(const char* when, const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      fail(fmt::format("{}, {}: {}", own_text(), when, reason_of(error)));
    }
  }

  // What comes before the first instruction; when the step started. Peers may have begun, and do
  // not wait for a rank that has not.
  Clock::time_point begin(std::int64_t number, const StepInputs& inputs, std::size_t job,
                          StepResult& result) {
    const auto fail_at = [&](const std::string& reason) {
      fail(fmt::format("{}, as it begins the step: {}", own_text(), reason));
    };
    try {
      go_over_to(*jobs_.at(job));
      for (TensorId tensor : residents_) {
        VALIDATE(place_of(tensor).defined(), "'{}' was not given a value",
                 graph().tensor(tensor).name);
      }
      if (options_.count_memory) begin_most(options_.device);
      now_->reset();
      now_->bodies->begin_step(number);
      if (!now_->streams) result.copied_ahead = take_inputs(inputs);
      const Clock::time_point start = Clock::now();
      if (now_->streams) result.copied_ahead = copy_in(inputs);
      return start;
    } catch (const Error& error) {
      fail_at(error.what());
      throw;
    } catch (const std::bad_alloc&) {
      fail_at("out of memory");
    } catch (const std::exception& error) {
      fail_at(reason_of(error));
    }
    throw Error(ErrorKind::kVerification, *failure_);
  }

  struct Launched {
    StepResult result;
    std::optional<std::size_t> flight = {};  // on a device that has not been waited for
  };

  // All has been launched; that it has run, and how long it took, is known only now.
  void complete(Launched& step) {
    if (!step.flight) return;
    try_on_device("at the end of the step", [&] {
      now_->streams->wait(*step.flight);
      step.result.duration = now_->streams->duration(*step.flight);
      transport_.check();
      if (options_.record) step.result.spans = now_->streams->spans();
    });
    step.flight.reset();
  }

  // How many of the inputs had been copied ahead.
  std::int64_t copy_in(const StepInputs& inputs) {
    now_->streams->begin();
    const std::int64_t ahead = take_inputs(inputs);
    now_->streams->end_of_inputs();
    return ahead;
  }

  std::int64_t take_inputs(const StepInputs& inputs) {
    std::int64_t taken = 0;
    for (const auto& [tensor, value] : inputs) {
      at::Tensor* place = now_->outside(tensor);
      if (place == nullptr) continue;
      const auto made = std::ranges::find_if(ahead_, [&](const Ahead& one) {
        return one.job == now_ && one.tensor == tensor && one.given.is_same(value);
      });
      if (made != ahead_.end()) {
        *place = made->value;
        if (now_->streams) now_->streams->take_ahead(made->value);
        ++taken;
      } else {
        *place =
            laid_as(graph().tensor(tensor), within_reach(own_part(now_->program, tensor, value)));
        if (now_->streams) *place = copied_in(*place);
      }
    }
    ahead_.clear();
    return taken;
  }

  // Beside the step before, if that may still run.
  at::Tensor copied_in(const at::Tensor& value) {
    if (launched_.empty() || value.device() == options_.device) {
      return now_->streams->copy_in(value);
    }
    at::Tensor made = now_->streams->copy_ahead(value);
    now_->streams->take_ahead(made);
    return made;
  }

  // A rank on a CPU has no streams that copy for it.
  at::Tensor within_reach(const at::Tensor& value) const {
    return now_->streams ? value : value.to(options_.device);
  }

  // Inputs of the next step.
  void copy_ahead(const StepInputs& next) {
    try_on_device("as it copies the next inputs", [&] {
      if (now_->streams) now_->streams->drop_ahead();
      for (const auto& [tensor, value] : next) {
        if (now_->outside(tensor) == nullptr) continue;
        at::Tensor laid =
            laid_as(graph().tensor(tensor), within_reach(own_part(now_->program, tensor, value)));
        if (now_->streams) laid = now_->streams->copy_ahead(laid);
        ahead_.push_back({now_, tensor, value, std::move(laid)});
      }
    });
  }

  // The life of the thread that copies the inputs of the next step while this one is launched: to
  // lay out and pin a batch of images takes the host as long as a third of their step takes the
  // device.
  void copy_nexts() {
    const c10::DeviceGuard on_own_device(options_.device);
    at::set_num_threads(std::min(options_.threads, kCopyThreads));
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || copied_next_ != nullptr; });
      if (ending_) return;
      const StepInputs& next = *copied_next_;
      lock.unlock();
      copy_ahead(next);
      lock.lock();
      copied_next_ = nullptr;
      changed_.notify_all();
    }
  }

  Nanoseconds since_start() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  // A thread's life: its line once a round. A new thread is on the first device, and would open a
  // context there.
  void serve(std::size_t line, std::uint64_t done) {
    const c10::DeviceGuard on_own_device(options_.device);
    const comm::ShortTurns at_once;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ending_ || round_ > done; });
        if (ending_) return;
        done = round_;
      }
      run_line(line);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  void run_line(std::size_t line) {
    const c10::InferenceMode no_gradients;
    const Queue queue = LoadedJob::queue_of(line);
    at::set_num_threads(queue == Queue::kCompute ? options_.threads : 1);
    if (!now_->streams) return run_instructions(line);
    try_on_device("as a queue begins", [&] {
      const c10::StreamGuard on_its_stream = now_->streams->enter(queue);
      run_instructions(line);
    });
  }

  void run_instructions(std::size_t line) {
    if (line >= now_->lines.size()) return;  // of another job
    for (InstructionId id : now_->lines[line]) {
      if (!wait_for(id, sleepers_[line])) return;
      const Instruction& instruction = now_->program.instructions[id];
      Nanoseconds begin = 0;
      try {
        if (options_.before_each) options_.before_each(instruction);
        if (options_.record) begin = since_start();
        if (now_->streams) now_->streams->before(id);
        run(id, instruction);
        if (now_->streams) now_->streams->after(id);
      } catch (const Error& error) {
        return fail(instruction, error.what());
      } catch (const std::bad_alloc&) {
        return fail(instruction, "out of memory");
      } catch (const std::exception& error) {
        return fail(instruction, reason_of(error));
      } catch (...) {  // of a hook: nothing may leave a thread
        return fail(instruction, "an exception of no known type");
      }
      if (options_.record) now_->spans[id] = {begin, since_start()};
      end(instruction);
    }
  }

  // The thread of a line, while the instruction at its head may not run yet.
  struct Sleeper {
    std::condition_variable changed;
    std::optional<InstructionId> awaits;
    bool has_thread = false;
  };

  bool wait_for(InstructionId id, Sleeper& sleeper) {
    const auto ready = [&] { return now_->waits[id].left.load(std::memory_order_acquire) == 0; };
    if (!ready()) {
      std::unique_lock lock(mutex_);
      sleeper.awaits = id;
      sleeper.changed.wait(lock, [&] { return ready() || failed_.load(); });
      sleeper.awaits.reset();
    }
    return !failed_.load(std::memory_order_relaxed);
  }

  void end(const Instruction& instruction) {
    for (SlotId slot : instruction.reads) {
      if (now_->slots.readers[slot].left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        now_->slots.value[slot].reset();
      }
    }
    for (SlotId slot : instruction.drops) now_->slots.value[slot].reset();
    for (InstructionId next : instruction.wakes) {
      if (now_->waits[next].left.fetch_sub(1, std::memory_order_acq_rel) == 1) wake(next);
    }
  }

  // Its line's thread, if that waits for it and not for one before it. Without the lock it could
  // be between looking and falling asleep.
  void wake(InstructionId id) {
    Sleeper& sleeper = sleepers_[now_->lines_of[id]];
    const std::lock_guard lock(mutex_);
    if (sleeper.awaits == id) sleeper.changed.notify_one();
  }

  // What another rank failed with, which comes by the transport, stays as it is: all ranks end with
  // the line of the first. Of a rank that is lost, it is said who missed it.
  void fail(const Instruction& instruction, const std::string& reason) {
    const std::string task = describe_task(now_->job, device_, instruction);
    std::string message = fmt::format("{}: {}", task, reason);
    if (reason.starts_with("rank ")) {
      // "rank 1 (host/cpu1), task 3, …: …" it says itself, "rank 1 (host/cpu1): …" is said of it.
      const bool by_itself = reason.find("), ") < reason.find("): ");
      message = by_itself ? reason : fmt::format("{}, noticed by {}", reason, task);
    }
    fail(message);
  }

  void fail(const std::string& message) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = message;
      failed_.store(true);
    }
    for (Sleeper& sleeper : sleepers_) sleeper.changed.notify_all();
    transport_.abort(message);
  }

  void run(InstructionId id, const Instruction& instruction) {
    std::vector<at::Tensor> given = now_->bodies->run(id);
    if (now_->streams && instruction.resident) {
      for (SlotId slot : instruction.slots) {
        now_->streams->use(now_->slots.value[slot], instruction.queue);
      }
    }
    now_->exchange.act(instruction, given);
  }

  const DeviceId device_;
  comm::Transport& transport_;
  const WorkerOptions options_;
  CompressionState compression_;
  std::vector<TensorId> residents_;
  std::vector<SlotId>
      old_versions_;  // of residents, which nobody updates (runtime/program/faults.h)

  struct Ahead {
    const LoadedJob* job = nullptr;
    TensorId tensor;
    at::Tensor given;  // to copy
    at::Tensor value;  // the copy
  };
  std::vector<Ahead> ahead_;  // inputs of the next step

  static constexpr int kCopyThreads = 4;
  static constexpr std::size_t kMostLaunched = 2;  // as QueueStreams has flights
  std::deque<Launched> launched_;                  // and not yet asked for, in order

  std::vector<std::unique_ptr<LoadedJob>> jobs_;
  LoadedJob* now_ = nullptr;              // that was run last, whose places hold what stays
  IdVector<TensorId, at::Tensor> aside_;  // what stays and that job does not touch

  std::deque<Sleeper> sleepers_;  // by line; they stay where they are

  std::mutex mutex_;
  std::condition_variable changed_;  // a round begins, or all its threads have ended theirs
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool ending_ = false;
  Clock::time_point start_;
  std::atomic<bool> failed_{false};
  std::optional<std::string> failure_;
  const StepInputs* copied_next_ = nullptr;  // what the copier has to copy or is at
  std::vector<std::thread> threads_;
  std::thread copier_;
};

Worker::Worker(const Job& job, DeviceId device, comm::Transport& transport,
               const WorkerOptions& options)
    : state_(std::make_unique<State>(job, device, transport, options)) {}
Worker::~Worker() = default;
std::size_t Worker::add(const Job& job) { return state_->add(job); }
const std::vector<TensorId>& Worker::residents() const { return state_->residents(); }
void Worker::set_resident(TensorId tensor, const at::Tensor& value) {
  state_->set_resident(tensor, value);
}
at::Tensor Worker::resident(TensorId tensor) const { return state_->resident(tensor); }
void Worker::launch(std::int64_t number, const StepInputs& inputs, std::size_t job,
                    const StepInputs* next) {
  state_->launch(number, inputs, job, next);
}
StepResult Worker::finish() { return state_->finish(); }
StepResult Worker::step(std::int64_t number, const StepInputs& inputs, std::size_t job,
                        const StepInputs* next) {
  state_->launch(number, inputs, job, next);
  return state_->finish();
}

}  // namespace heterog::runtime

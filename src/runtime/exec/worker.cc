// Four queues, a thread each; tensors are dropped once their last reader has ended.
#include "runtime/exec/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "comm/time_slice.h"
#include "runtime/exec/exchange.h"
#include "runtime/exec/run_body.h"
#include "runtime/exec/streams.h"
#include "runtime/kernels/host_memory.h"

namespace heterog::runtime {

using Clock = std::chrono::steady_clock;

class Worker::State {
 public:
  State(const Job& job, DeviceId device, comm::Transport& transport, const WorkerOptions& options)
      : job_(job),
        graph_(*job.problem->graph),
        program_(job.programs[device]),
        transport_(transport),
        options_(options),
        slots_(program_.slots.size()),
        exchange_(job, program_, transport, slots_.value,
                  {.device = options.device, .floats = options.floats}),
        waits_(program_.instructions.size()),
        spans_(options.record ? program_.instructions.size() : 0) {
    for (SlotId slot : id_range<SlotId>(program_.slots.size())) {
      if (program_.slots[slot].kind == Slot::Kind::kResident) {
        residents_.push_back(program_.slots[slot].tensor);
      }
    }
    std::sort(residents_.begin(), residents_.end());
    if (options.device.is_cpu()) {
      keep_freed_memory();
    } else {
      at::globalContext().setAllowTF32CuBLAS(graph_.tf32().products);
      at::globalContext().setAllowTF32CuDNN(graph_.tf32().convolutions);
      streams_.emplace(program_,
                       QueueStreams::Options{.device = options.device, .record = options.record});
    }
    bodies_.emplace(job, program_, options_, slots_, streams_ ? &*streams_ : nullptr);
    try {
      for (Queue queue : {Queue::kSend, Queue::kReceive, Queue::kCollective}) {
        if (queue_of(queue).empty()) continue;
        threads_.emplace_back([this, queue] { serve(queue); });
      }
    } catch (...) {  // the system has no more threads
      end_threads();
      throw;
    }
  }

  ~State() { end_threads(); }

  const std::vector<TensorId>& residents() const { return residents_; }

  void set_resident(TensorId tensor, const at::Tensor& value) {
    const SlotId slot = program_.slot_of[tensor];
    ENSURE(slot.valid());
    if (streams_) {
      slots_.value[slot] = streams_->copy_in(value.contiguous());
      return streams_->synchronize();
    }
    slots_.value[slot] = value.to(options_.device, value.scalar_type(), false, true).contiguous();
  }

  at::Tensor resident(TensorId tensor) const {
    const SlotId slot = program_.slot_of[tensor];
    ENSURE(slot.valid());
    return streams_ ? streams_->copy_out(slots_.value[slot]) : slots_.value[slot];
  }

  StepResult step(std::int64_t number, const StepInputs& inputs) {
    for (TensorId tensor : residents_) {
      VALIDATE(slots_.value[program_.slot_of[tensor]].defined(), "'{}' was not given a value",
               graph_.tensor(tensor).name);
    }
    reset();
    bodies_->begin_step(number);
    if (!streams_) {
      for (const auto& [tensor, value] : inputs) {
        const SlotId slot = program_.slot_of[tensor];
        if (slot.valid()) slots_.value[slot] = value;
      }
    }
    const Clock::time_point start = Clock::now();
    if (streams_) copy_in(inputs);
    {
      const std::lock_guard lock(mutex_);
      start_ = start;
      busy_ = threads_.size();
      ++round_;
    }
    changed_.notify_all();
    run_queue(Queue::kCompute);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return busy_ == 0; });
    }
    StepResult result;
    result.start =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count();
    result.captures = bodies_->take_captures();
    result.overwrites = bodies_->overwrites();
    if (streams_ && !failure_) finish_on_device(result);
    drop_inputs();
    if (failure_) throw Error(ErrorKind::kVerification, *failure_);
    if (!streams_) result.duration = since_start();
    result.spans = spans_;
    return result;
  }

 private:
  const std::vector<InstructionId>& queue_of(Queue queue) const {
    return program_.queues[static_cast<std::size_t>(queue)];
  }

  void end_threads() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // ---- a step ----

  void reset() {
    failed_.store(false);
    failure_.reset();
    for (InstructionId id : id_range<InstructionId>(program_.instructions.size())) {
      waits_[id].left.store(program_.instructions[id].waits_for, std::memory_order_relaxed);
    }
    for (SlotId slot : id_range<SlotId>(program_.slots.size())) {
      slots_.readers[slot].left.store(program_.slots[slot].readers, std::memory_order_relaxed);
    }
  }

  void drop_inputs() {
    for (SlotId slot : id_range<SlotId>(program_.slots.size())) {
      if (program_.slots[slot].kind != Slot::Kind::kResident) slots_.value[slot].reset();
    }
  }

  // Work of the device that is no instruction's.
  template <class Work>
  void try_on_device(const char* when, const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      fail(fmt::format("rank {} ({}), {}: {}", program_.device.value(),
                       job_.problem->cluster->device(program_.device).name, when,
                       reason_of(error)));
    }
  }

  // All has been launched; that it has run, and how long it took, is known only now.
  void finish_on_device(StepResult& result) {
    try_on_device("at the end of the step", [&] {
      streams_->synchronize();
      result.duration = since_start();
      transport_.check();
      for (at::Tensor& capture : result.captures) capture = streams_->copy_out(capture);
      if (options_.record) spans_ = streams_->spans();
    });
  }

  void copy_in(const StepInputs& inputs) {
    try_on_device("as it copies the inputs", [&] {
      streams_->begin();
      for (const auto& [tensor, value] : inputs) {
        const SlotId slot = program_.slot_of[tensor];
        if (slot.valid()) slots_.value[slot] = streams_->copy_in(value);
      }
      streams_->end_of_inputs();
    });
    if (failure_) throw Error(ErrorKind::kVerification, *failure_);
  }

  Nanoseconds since_start() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  // A thread's life: its queue once a round.
  void serve(Queue queue) {
    const comm::ShortTurns at_once;
    std::uint64_t done = 0;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ending_ || round_ > done; });
        if (ending_) return;
        done = round_;
      }
      run_queue(queue);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  void run_queue(Queue queue) {
    const c10::InferenceMode no_gradients;
    at::set_num_threads(queue == Queue::kCompute ? options_.threads : 1);
    if (!streams_) return run_instructions(queue);
    try_on_device("as a queue begins", [&] {
      const c10::StreamGuard on_its_stream = streams_->enter(queue);
      run_instructions(queue);
    });
  }

  void run_instructions(Queue queue) {
    for (InstructionId id : queue_of(queue)) {
      if (!wait_for(id)) return;
      const Instruction& instruction = program_.instructions[id];
      Nanoseconds begin = 0;
      try {
        if (options_.before_each) options_.before_each(instruction);
        if (options_.record) begin = since_start();
        if (streams_) streams_->before(id);
        run(id, instruction);
        if (streams_) streams_->after(id);
      } catch (const Error& error) {
        return fail(instruction, error.what());
      } catch (const std::bad_alloc&) {
        return fail(instruction, "out of memory");
      } catch (const std::exception& error) {
        return fail(instruction, reason_of(error));
      } catch (...) {  // of a hook: nothing may leave a thread
        return fail(instruction, "an exception of no known type");
      }
      if (options_.record) spans_[id] = {begin, since_start()};
      end(instruction);
    }
  }

  bool wait_for(InstructionId id) {
    const auto ready = [&] { return waits_[id].left.load(std::memory_order_acquire) == 0; };
    if (!ready()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ready() || failed_.load(); });
    }
    return !failed_.load(std::memory_order_relaxed);
  }

  void end(const Instruction& instruction) {
    for (SlotId slot : instruction.reads) {
      if (slots_.readers[slot].left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        slots_.value[slot].reset();
      }
    }
    for (SlotId slot : instruction.drops) slots_.value[slot].reset();
    bool wakes = false;
    for (InstructionId next : instruction.wakes) {
      wakes |= waits_[next].left.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }
    if (!wakes) return;
    { const std::lock_guard lock(mutex_); }  // nobody is between looking and falling asleep
    changed_.notify_all();
  }

  // What another rank failed with, which comes by the transport, stays as it is: all ranks end with
  // the line of the first. Of a rank that is lost, it is said who missed it.
  void fail(const Instruction& instruction, const std::string& reason) {
    const std::string task = describe_task(job_, program_.device, instruction);
    std::string message = fmt::format("{}: {}", task, reason);
    if (reason.starts_with("rank ")) {
      const bool has_task = reason.find("), task ") != std::string::npos;
      message = has_task ? reason : fmt::format("{}, noticed by {}", reason, task);
    }
    fail(message);
  }

  void fail(const std::string& message) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = message;
      failed_.store(true);
    }
    changed_.notify_all();
    transport_.abort(message);
  }

  void run(InstructionId id, const Instruction& instruction) {
    std::vector<at::Tensor> given = bodies_->run(id);
    if (streams_ && instruction.resident) {
      streams_->use(slots_.value[instruction.slots[0]], instruction.queue);
    }
    exchange_.act(instruction, given);
  }

  const Job& job_;
  const graph::ModelGraph& graph_;
  const Program& program_;
  comm::Transport& transport_;
  WorkerOptions options_;
  std::vector<TensorId> residents_;

  std::optional<QueueStreams> streams_;  // of a device that has some; gone after the values
  SlotValues slots_;
  std::optional<BodyRunner> bodies_;
  Exchange exchange_;
  IdVector<InstructionId, SlotValues::Counter> waits_;
  IdVector<InstructionId, Span> spans_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool ending_ = false;
  Clock::time_point start_;
  std::atomic<bool> failed_{false};
  std::optional<std::string> failure_;
  std::vector<std::thread> threads_;
};

Worker::Worker(const Job& job, DeviceId device, comm::Transport& transport,
               const WorkerOptions& options)
    : state_(std::make_unique<State>(job, device, transport, options)) {}
Worker::~Worker() = default;
const std::vector<TensorId>& Worker::residents() const { return state_->residents(); }
void Worker::set_resident(TensorId tensor, const at::Tensor& value) {
  state_->set_resident(tensor, value);
}
at::Tensor Worker::resident(TensorId tensor) const { return state_->resident(tensor); }
StepResult Worker::step(std::int64_t number, const StepInputs& inputs) {
  return state_->step(number, inputs);
}

}  // namespace heterog::runtime

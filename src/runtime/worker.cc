// Four queues, a thread each; tensors are dropped once their last reader has ended.
#include "runtime/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "runtime/exchange.h"
#include "runtime/host_memory.h"
#include "runtime/random.h"
#include "runtime/slices.h"
#include "runtime/streams.h"
#include "runtime/time_slice.h"

namespace heterog::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = BodyStep::Kind;

// One line of what PyTorch says.
std::string reason_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return printable(torch_error ? torch_error->what_without_backtrace() : error.what(), 300);
}

// What is counted down in a step.
struct Counter {
  std::atomic<std::uint32_t> left{0};
};

}  // namespace

std::string describe_task(const Job& job, DeviceId device, const Instruction& instruction) {
  const graph::ModelGraph& graph = *job.problem->graph;
  static constexpr const char* kQueues[] = {"computes", "sends", "receives", "reduces"};
  std::string what;
  if (instruction.queue == Queue::kCompute) {
    for (const BodyStep& step : instruction.body) {
      if (step.op.valid()) what = graph.op(step.op).name;
    }
  }
  if (what.empty() && instruction.tensor.valid()) what = graph.tensor(instruction.tensor).name;
  return fmt::format("rank {} ({}), task {}, which {} '{}'", device.value(),
                     job.problem->cluster->device(device).name, instruction.task.value(),
                     kQueues[static_cast<int>(instruction.queue)], what);
}

class Worker::State {
 public:
  State(const Job& job, DeviceId device, Transport& transport, const WorkerOptions& options)
      : job_(job),
        graph_(*job.problem->graph),
        program_(job.programs[device]),
        transport_(transport),
        options_(options),
        execute_{.floats = options.floats, .device = options.device},
        values_(program_.slots.size()),
        exchange_(job, program_, transport, values_,
                  {.device = options.device, .floats = options.floats}),
        readers_(program_.slots.size()),
        waits_(program_.instructions.size()),
        captures_(program_.captures.size()),
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
      streams_.emplace(program_,
                       QueueStreams::Options{.device = options.device, .record = options.record});
    }
    prepare_calls();
    for (Queue queue : {Queue::kSend, Queue::kReceive, Queue::kCollective}) {
      if (queue_of(queue).empty()) continue;
      threads_.emplace_back([this, queue] { serve(queue); });
    }
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const std::vector<TensorId>& residents() const { return residents_; }

  void set_resident(TensorId tensor, const at::Tensor& value) {
    const SlotId slot = program_.slot_of[tensor];
    ENSURE(slot.valid());
    if (streams_) {
      values_[slot] = streams_->copy_in(value.contiguous());
      return streams_->synchronize();
    }
    values_[slot] = value.to(options_.device, value.scalar_type(), false, true).contiguous();
  }

  at::Tensor resident(TensorId tensor) const {
    const SlotId slot = program_.slot_of[tensor];
    ENSURE(slot.valid());
    return streams_ ? streams_->copy_out(values_[slot]) : values_[slot];
  }

  StepResult step(std::int64_t number, const StepInputs& inputs) {
    for (TensorId tensor : residents_) {
      VALIDATE(values_[program_.slot_of[tensor]].defined(), "'{}' was not given a value",
               graph_.tensor(tensor).name);
    }
    reset();
    if (!streams_) {
      for (const auto& [tensor, value] : inputs) {
        const SlotId slot = program_.slot_of[tensor];
        if (slot.valid()) values_[slot] = value;
      }
    }
    const Clock::time_point start = Clock::now();
    if (streams_) copy_in(inputs);
    {
      const std::lock_guard lock(mutex_);
      step_ = number;
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
    const Nanoseconds on_device = streams_ && !failure_ ? finish_on_device() : 0;
    drop_inputs();
    if (failure_) throw Error(ErrorKind::kVerification, *failure_);
    StepResult result;
    result.start =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count();
    result.duration = streams_ ? on_device : since_start();
    result.captures = std::move(captures_);
    captures_.assign(program_.captures.size(), {});
    result.spans = spans_;
    return result;
  }

 private:
  const std::vector<InstructionId>& queue_of(Queue queue) const {
    return program_.queues[static_cast<std::size_t>(queue)];
  }

  // ---- before the first step ----

  void prepare_calls() {
    std::map<std::tuple<OpId, std::int64_t>, std::size_t> known;
    calls_of_.resize(program_.instructions.size());
    for (InstructionId id : id_range<InstructionId>(program_.instructions.size())) {
      const Instruction& instruction = program_.instructions[id];
      for (const BodyStep& step : instruction.body) {
        std::size_t index = 0;
        if (step.kind == Kind::kCall) {
          const std::int64_t samples = step.end - step.begin;
          const auto [at, is_new] = known.try_emplace({step.op, samples}, calls_.size());
          index = at->second;
          if (is_new) prepare(instruction, step, samples);
        }
        calls_of_[id].push_back(index);
      }
    }
  }

  void prepare(const Instruction& instruction, const BodyStep& step, std::int64_t samples) {
    try {
      calls_.emplace_back(graph_, step.op, Samples{.slice = samples, .whole = job_.problem->batch},
                          execute_);
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("{}: {} cannot be prepared: {}",
                              describe_task(job_, program_.device, instruction),
                              graph_.type_name(step.op), reason_of(error)));
    }
  }

  // ---- a step ----

  void reset() {
    failed_.store(false);
    failure_.reset();
    for (InstructionId id : id_range<InstructionId>(program_.instructions.size())) {
      waits_[id].left.store(program_.instructions[id].waits_for, std::memory_order_relaxed);
    }
    for (SlotId slot : id_range<SlotId>(program_.slots.size())) {
      readers_[slot].left.store(program_.slots[slot].readers, std::memory_order_relaxed);
    }
  }

  void drop_inputs() {
    for (SlotId slot : id_range<SlotId>(program_.slots.size())) {
      if (program_.slots[slot].kind != Slot::Kind::kResident) values_[slot].reset();
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

  // All has been launched; that it has run is known only now. Returns how long the step took.
  Nanoseconds finish_on_device() {
    Nanoseconds duration = 0;
    try_on_device("at the end of the step", [&] {
      streams_->synchronize();
      duration = since_start();
      transport_.check();
      for (at::Tensor& capture : captures_) capture = streams_->copy_out(capture);
      if (options_.record) spans_ = streams_->spans();
    });
    return duration;
  }

  void copy_in(const StepInputs& inputs) {
    try_on_device("as it copies the inputs", [&] {
      streams_->begin();
      for (const auto& [tensor, value] : inputs) {
        const SlotId slot = program_.slot_of[tensor];
        if (slot.valid()) values_[slot] = streams_->copy_in(value);
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
    const ShortTurns at_once;
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
    const c10::StreamGuard on_its_stream = streams_->enter(queue);
    run_instructions(queue);
  }

  void run_instructions(Queue queue) {
    for (InstructionId id : queue_of(queue)) {
      if (!wait_for(id)) return;
      const Instruction& instruction = program_.instructions[id];
      if (options_.before_each) options_.before_each(instruction);
      const Nanoseconds begin = options_.record ? since_start() : 0;
      try {
        if (streams_) streams_->before(id);
        run(id, instruction);
        if (streams_) streams_->after(id);
      } catch (const Error& error) {
        return fail(instruction, error.what());
      } catch (const std::bad_alloc&) {
        return fail(instruction, "out of memory");
      } catch (const std::exception& error) {
        return fail(instruction, reason_of(error));
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
      if (readers_[slot].left.fetch_sub(1, std::memory_order_acq_rel) == 1) values_[slot].reset();
    }
    for (SlotId slot : instruction.drops) values_[slot].reset();
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

  // ---- an instruction ----

  void run(InstructionId id, const Instruction& instruction) {
    std::vector<at::Tensor> registers(instruction.registers);
    for (std::size_t i = 0; i < instruction.body.size(); ++i) {
      const BodyStep& step = instruction.body[i];
      take(step, calls_of_[id][i], registers, instruction.queue);
      for (Register r : step.dead) registers[r].reset();
    }
    std::vector<at::Tensor> given;
    for (Register r : instruction.values) given.push_back(std::move(registers[r]));
    if (streams_ && instruction.resident) {
      streams_->use(values_[instruction.slots[0]], instruction.queue);
    }
    exchange_.act(instruction, given);
  }

  void take(const BodyStep& step, std::size_t call, std::vector<at::Tensor>& registers,
            Queue queue) {
    switch (step.kind) {
      case Kind::kLoad:
        registers[step.out[0]] = values_[step.slot];
        EXPECT(registers[step.out[0]].defined());
        if (streams_) streams_->use(registers[step.out[0]], queue);
        return;
      case Kind::kCall:
        return run_call(step, calls_[call], registers, queue);
      case Kind::kRandom:
        return run_dropout(step, registers);
      case Kind::kCut:
        registers[step.out[0]] = cut_samples(registers[step.in[0]], step.cut);
        return;
      case Kind::kJoin: {
        std::vector<at::Tensor> parts;
        for (Register r : step.in) parts.push_back(registers[r]);
        registers[step.out[0]] = join_samples(parts, step.cut.dim, step.cut.outer);
        return;
      }
      case Kind::kZeros:
        registers[step.out[0]] =
            at::zeros(sizes_at(graph_.shape(step.tensor), step.end - step.begin),
                      at::TensorOptions()
                          .dtype(scalar_type(graph_.tensor(step.tensor).dtype, options_.floats))
                          .device(options_.device));
        return;
      case Kind::kScale:
        registers[step.out[0]] = registers[step.in[0]] * step.factor;
        return;
      case Kind::kAdd: {
        at::Tensor sum = registers[step.in[0]];
        for (std::size_t i = 1; i < step.in.size(); ++i) {
          const at::Tensor& addend = registers[step.in[i]];
          sum = i > 1 || step.in_place ? sum.add_(addend) : sum.add(addend);
        }
        registers[step.out[0]] = sum;
        return;
      }
      case Kind::kStore:
        values_[step.slot] =
            step.in_place ? registers[step.in[0]].contiguous() : registers[step.in[0]];
        return;
      case Kind::kCapture:
        captures_[step.capture] = registers[step.in[0]];
        return;
    }
  }

  // Whether this step is the last to see the memory of its first operand.
  bool may_overwrite(const BodyStep& step, const OperatorCall& call,
                     const std::vector<at::Tensor>& registers) const {
    if (!step.in_place || !call.can_overwrite()) return false;
    // References say who has launched his reading, not whose stream has come to it. What stays is
    // read and replaced in an order of the plan's.
    if (streams_ && step.slot.valid() && program_.slots[step.slot].kind == Slot::Kind::kBuffer) {
      return false;
    }
    const at::Tensor& first = registers[step.in[0]];
    const bool in_slot = step.slot.valid() && values_[step.slot].is_same(first);
    if (in_slot && program_.slots[step.slot].kind == Slot::Kind::kBuffer &&
        readers_[step.slot].left.load(std::memory_order_acquire) != 1) {
      return false;
    }
    return first.use_count() == (in_slot ? 2 : 1) && first.storage().use_count() == 1 &&
           first.is_non_overlapping_and_dense();
  }

  void run_call(const BodyStep& step, const OperatorCall& call, std::vector<at::Tensor>& registers,
                Queue queue) {
    const bool overwrites = may_overwrite(step, call, registers);
    std::vector<at::Tensor> operands;
    operands.reserve(step.in.size());
    for (Register r : step.in) operands.push_back(registers[r]);
    torch::jit::Stack stack = call.bind(operands);
    operands.clear();
    if (queue == Queue::kCompute) {
      for (int i = 1; i < options_.repeat; ++i) call.call(stack);
    }
    if (overwrites) {
      at::Tensor result = call.call_over(std::move(stack));
      for (Register r : step.dead) registers[r].reset();
      if (step.out[0] != kNoRegister) registers[step.out[0]] = std::move(result);
      return;
    }
    for (Register r : step.dead) registers[r].reset();  // held by the stack alone
    std::vector<at::Tensor> results = call.call(std::move(stack));
    EXPECT(step.out.size() <= results.size());
    for (std::size_t i = 0; i < step.out.size(); ++i) {
      if (step.out[i] != kNoRegister) registers[step.out[i]] = std::move(results[i]);
    }
  }

  // native_dropout(x, rate, train) → x · mask / (1 − rate), mask.
  void run_dropout(const BodyStep& step, std::vector<at::Tensor>& registers) {
    const at::Tensor x = registers[step.in[0]];
    const double rate = graph_.args(step.op)[1].number;
    const graph::SplitRule rule =
        graph::seen_rule(graph_, *job_.problem->splits, graph_.inputs(step.op)[0]);
    Cut cut;
    if (rule.kind == graph::SplitKind::kConcat) {
      cut = {rule.dim, rule.outer, job_.problem->batch, step.begin, step.end - step.begin};
    }
    const at::Tensor mask =
        keep_mask({options_.seed, step_, step.op}, rate, x.sizes().vec(), cut, options_.device);
    if (step.out[0] != kNoRegister) {
      registers[step.out[0]] = rate < 1 ? at::mul(x, mask).mul_(1 / (1 - rate)) : at::zeros_like(x);
    }
    if (step.out.size() > 1 && step.out[1] != kNoRegister) registers[step.out[1]] = mask;
  }

  const Job& job_;
  const graph::ModelGraph& graph_;
  const Program& program_;
  Transport& transport_;
  WorkerOptions options_;
  ExecuteOptions execute_;
  std::vector<TensorId> residents_;
  std::vector<OperatorCall> calls_;
  IdVector<InstructionId, std::vector<std::size_t>> calls_of_;  // parallel to the bodies

  std::optional<QueueStreams> streams_;  // of a device that has some; gone after the values
  IdVector<SlotId, at::Tensor> values_;
  Exchange exchange_;
  IdVector<SlotId, Counter> readers_;
  IdVector<InstructionId, Counter> waits_;
  std::vector<at::Tensor> captures_;
  IdVector<InstructionId, Span> spans_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool ending_ = false;
  std::int64_t step_ = 0;
  Clock::time_point start_;
  std::atomic<bool> failed_{false};
  std::optional<std::string> failure_;
  std::vector<std::thread> threads_;
};

Worker::Worker(const Job& job, DeviceId device, Transport& transport, const WorkerOptions& options)
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

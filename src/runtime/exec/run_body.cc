// Operators by prepared calls; those of one element at a time over operands that are read no more.
#include "runtime/exec/run_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/text.h"
#include "runtime/attention/attention.h"
#include "runtime/exec/slices.h"
#include "runtime/gpu/gpu_kernels.h"
#include "runtime/kernels/draw.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {

using Kind = BodyStep::Kind;

std::string reason_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return printable(torch_error ? torch_error->what_without_backtrace() : error.what(), 300);
}

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

BodyRunner::BodyRunner(const Job& job, const Program& program, const WorkerOptions& options,
                       SlotValues& values, const QueueStreams* streams)
    : job_(job),
      graph_(*job.problem->graph),
      program_(program),
      options_(options),
      slots_(values),
      streams_(streams),
      calls_of_(program.instructions.size()),
      captures_(program.captures.size()) {
  std::map<std::tuple<OpId, std::int64_t>, std::size_t> known;
  for (InstructionId id : id_range<InstructionId>(program_.instructions.size())) {
    const Instruction& instruction = program_.instructions[id];
    for (const BodyStep& step : instruction.body) {
      std::size_t index = 0;
      if (step.kind == Kind::kCall || step.kind == Kind::kRandom) {
        const std::int64_t samples = step.end - step.begin;
        const auto [at, is_new] = known.try_emplace({step.op, samples}, calls_.size());
        index = at->second;
        if (is_new) prepare(instruction, step, samples);
      } else if (step.kind == Kind::kLists) {
        index = list_calls_.size();
        prepare(instruction, step, step.end - step.begin);
      }
      calls_of_[id].push_back(index);
    }
  }
}

void BodyRunner::begin_step(std::int64_t number) {
  step_ = number;
  overwrites_.store(0, std::memory_order_relaxed);
}

std::vector<at::Tensor> BodyRunner::take_captures() {
  std::vector<at::Tensor> taken(captures_.size());
  captures_.swap(taken);
  return taken;
}

void BodyRunner::prepare(const Instruction& instruction, const BodyStep& step,
                         std::int64_t samples) {
  const Samples of_whole{.slice = samples, .whole = job_.problem->batch};
  const ExecuteOptions options{
      .floats = options_.floats, .device = options_.device, .rows = step.rows};
  try {
    if (step.kind == Kind::kLists && graph_.facts(step.op).multi_tensor) {
      list_calls_.emplace_back(FusedUpdate(graph_, step.ops, of_whole, options));
    } else if (step.kind == Kind::kLists) {
      list_calls_.emplace_back(ListCall(graph_, step.ops, of_whole, options));
    } else {
      calls_.emplace_back(graph_, step.op, of_whole, options);
    }
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: {} cannot be prepared: {}",
                            describe_task(job_, program_.device, instruction),
                            graph_.type_name(step.op), reason_of(error)));
  }
}

std::vector<at::Tensor> BodyRunner::run(InstructionId id) {
  const Instruction& instruction = program_.instructions[id];
  Registers registers(instruction.registers);
  for (std::size_t i = 0; i < instruction.body.size(); ++i) {
    const BodyStep& step = instruction.body[i];
    take(step, calls_of_[id][i], registers, instruction.queue);
    for (Register r : step.dead) registers[r].reset();
  }
  std::vector<at::Tensor> given;
  for (Register r : instruction.values) given.push_back(std::move(registers[r]));
  return given;
}

void BodyRunner::take(const BodyStep& step, std::size_t call, Registers& registers, Queue queue) {
  switch (step.kind) {
    case Kind::kLoad:
      registers[step.out[0]] = slots_.value[step.slot];
      EXPECT(registers[step.out[0]].defined());
      if (streams_) streams_->use(registers[step.out[0]], queue);
      return;
    case Kind::kCall:
      return run_call(step, calls_[call], registers, queue);
    case Kind::kRandom:
      return run_random(step, calls_[call], registers);
    case Kind::kLists:
      return run_lists(step, list_calls_[call], registers, queue);
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
      slots_.value[step.slot] =
          step.in_place
              ? laid_as(graph_.tensor(program_.slots[step.slot].tensor), registers[step.in[0]])
              : registers[step.in[0]];
      return;
    case Kind::kRows:
      registers[step.out[0]] = registers[step.in[0]].narrow(0, step.begin, step.end - step.begin);
      return;
    case Kind::kStoreRows: {
      at::Tensor& whole = slots_.value[step.slot];
      if (streams_) streams_->use(whole, queue);
      whole.narrow(0, step.begin, step.end - step.begin).copy_(registers[step.in[0]]);
      return;
    }
    case Kind::kCapture:
      captures_[step.capture] = registers[step.in[0]];
      return;
  }
}

// Whether this step is the last to see the memory of its first operand.
bool BodyRunner::may_overwrite(const BodyStep& step, const OperatorCall& call,
                               const Registers& registers) const {
  if (!step.in_place || !call.can_overwrite()) return false;
  // References say who has launched his reading, not whose stream has come to it. What stays is
  // read and replaced in an order of the plan's.
  if (streams_ && step.slot.valid() && program_.slots[step.slot].kind == Slot::Kind::kBuffer) {
    return false;
  }
  const at::Tensor& first = registers[step.in[0]];
  const bool in_slot = step.slot.valid() && slots_.value[step.slot].is_same(first);
  if (in_slot && program_.slots[step.slot].kind == Slot::Kind::kBuffer &&
      slots_.readers[step.slot].left.load(std::memory_order_acquire) != 1) {
    return false;
  }
  return first.use_count() == (in_slot ? 2 : 1) && first.storage().use_count() == 1 &&
         first.is_non_overlapping_and_dense();
}

bool BodyRunner::may_overwrite_statistics(const BodyStep& step, const OperatorCall& call,
                                          const Registers& registers) const {
  const std::vector<std::size_t>& statistics = call.running_statistics();
  return !statistics.empty() && std::ranges::all_of(statistics, [&](std::size_t operand) {
    return is_given_away(registers[step.in[operand]], step.replaced[operand]);
  });
}

void BodyRunner::run_call(const BodyStep& step, const OperatorCall& call, Registers& registers,
                          Queue queue) {
  // The graph's operator has a kernel on CPUs alone.
  if (has_gpu_kernels(options_.device) && is_attention(graph_, step.op)) {
    return run_attention(step, registers);
  }
  const bool overwrites = may_overwrite(step, call, registers);
  const bool over_statistics = may_overwrite_statistics(step, call, registers);
  std::vector<at::Tensor> operands;
  operands.reserve(step.in.size());
  for (Register r : step.in) operands.push_back(registers[r]);
  torch::jit::Stack stack = call.bind(operands);
  operands.clear();
  if (queue == Queue::kCompute) {
    for (int i = 1; i < options_.repeat; ++i) call.call(stack);
  }
  if (overwrites) {
    overwrites_.fetch_add(1, std::memory_order_relaxed);
    at::Tensor result = call.call_over(std::move(stack));
    for (Register r : step.dead) registers[r].reset();
    if (step.out[0] != kNoRegister) registers[step.out[0]] = std::move(result);
    return;
  }
  for (Register r : step.dead) registers[r].reset();  // held by the stack alone
  if (over_statistics) {
    overwrites_.fetch_add(static_cast<std::int64_t>(call.running_statistics().size()),
                          std::memory_order_relaxed);
  }
  std::vector<at::Tensor> results =
      over_statistics ? call.call_over_statistics(std::move(stack)) : call.call(std::move(stack));
  EXPECT(step.out.size() <= results.size());
  for (std::size_t i = 0; i < step.out.size(); ++i) {
    if (step.out[i] != kNoRegister) registers[step.out[i]] = std::move(results[i]);
  }
}

// Whether only this body, and the slot whose next value it makes, hold the tensor.
bool BodyRunner::is_given_away(const at::Tensor& value, SlotId slot) const {
  return slot.valid() && slots_.value[slot].is_same(value) && value.use_count() == 2 &&
         value.storage().use_count() == 1 && value.is_non_overlapping_and_dense();
}

void BodyRunner::run_lists(const BodyStep& step, const AnyListCall& call, Registers& registers,
                           Queue queue) {
  std::vector<bool> given_away;
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    given_away.push_back(is_given_away(registers[step.in[i]], step.replaced[i]));
  }
  std::vector<at::Tensor> operands;
  for (Register r : step.in) operands.push_back(registers[r]);
  const auto run = [&](const std::vector<bool>& overwritten) {
    return std::visit([&](const auto& one) { return one.run(operands, overwritten); }, call);
  };
  if (queue == Queue::kCompute) {
    const std::vector<bool> kept(operands.size(), false);
    for (int i = 1; i < options_.repeat; ++i) run(kept);
  }
  for (const bool written : given_away) overwrites_.fetch_add(written ? 1 : 0);
  std::vector<at::Tensor> results = run(given_away);
  for (std::size_t i = 0; i < step.out.size(); ++i) {
    if (step.out[i] != kNoRegister) registers[step.out[i]] = std::move(results[i]);
  }
}

void BodyRunner::run_random(const BodyStep& step, const OperatorCall& call,
                            Registers& registers) const {
  if (is_attention(graph_, step.op)) return run_attention(step, registers);
  std::vector<at::Tensor> operands;
  for (Register r : step.in) operands.push_back(registers[r]);
  const auto outputs = graph_.outputs(step.op);
  const TensorId made = *std::ranges::find_if(outputs, [](TensorId out) { return out.valid(); });
  std::vector<at::Tensor> results =
      draw(graph_, call, operands,
           {{options_.seed, step_, step.op}, step.begin, step.end, job_.problem->batch},
           graph::seen_rule(graph_, *job_.problem->splits, made),
           {.floats = options_.floats, .device = options_.device});
  for (std::size_t i = 0; i < step.out.size(); ++i) {
    if (step.out[i] != kNoRegister) registers[step.out[i]] = std::move(results.at(i));
  }
}

void BodyRunner::run_attention(const BodyStep& step, Registers& registers) const {
  std::vector<at::Tensor> operands;
  for (Register r : step.in) operands.push_back(registers[r]);
  const RandomStream stream{options_.seed, step_, drawn_for(graph_, step.op)};
  const graph::SplitRule& held =
      graph::seen_rule(graph_, *job_.problem->splits, graph_.inputs(step.op)[0]);
  std::vector<at::Tensor> results =
      runtime::run_attention(graph_, step.op, operands, stream,
                             drawn_cut(held, {stream, step.begin, step.end, job_.problem->batch}));
  for (std::size_t i = 0; i < step.out.size(); ++i) {
    if (step.out[i] != kNoRegister) registers[step.out[i]] = std::move(results[i]);
  }
}

}  // namespace heterog::runtime

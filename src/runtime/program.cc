// Splits a plan into the instructions of its devices, in queues, with who waits for whom.
#include "runtime/program.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/body.h"
#include "runtime/check_job.h"

namespace heterog::runtime {
namespace {

using compiler::TaskKind;
using graph::OperandUse;
using graph::TensorRole;

class JobBuilder {
 public:
  JobBuilder(std::shared_ptr<const cost::Problem> problem, const compiler::Plan& plan,
             const JobOptions& options)
      : view_(*problem, plan), plan_(plan), options_(options) {
    job_.problem = std::move(problem);
    job_.programs.resize(plan.device_count);
    for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
      Program& program = job_.programs[device];
      program.device = device;
      program.slot_of.assign(view_.graph.tensor_count(), SlotId());
      tables_.emplace_back(view_, program);
    }
    instruction_of_.resize(plan.task_count());
    for (TaskId task : plan.task_ids()) {
      if (plan.kind[task] == TaskKind::kAllReduce) find_set(plan.participants[task]);
    }
  }

  Job build(std::span<const TaskId> dispatch) && {
    for (TaskId task : dispatch) add_task(task);
    for (TaskId task : dispatch) connect(task);
    for (Program& program : job_.programs) count_readers(program);
    return std::move(job_);
  }

 private:
  std::uint32_t find_set(std::span<const DeviceId> members) {
    const std::vector<DeviceId> set(members.begin(), members.end());
    const auto known = std::find(job_.sets.begin(), job_.sets.end(), set);
    if (known != job_.sets.end()) return static_cast<std::uint32_t>(known - job_.sets.begin());
    job_.sets.push_back(set);
    return static_cast<std::uint32_t>(job_.sets.size() - 1);
  }

  void add_task(TaskId task) {
    switch (plan_.kind[task]) {
      case TaskKind::kCompute:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::compute);
      case TaskKind::kMerge:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::merge);
      case TaskKind::kSum:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::sum);
      case TaskKind::kUpdate:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::update);
      case TaskKind::kTransfer:
      case TaskKind::kPush:
      case TaskKind::kPull:
        add(task, plan_.peer[task], Queue::kSend, &JobBuilder::send);
        return add(task, plan_.device[task], Queue::kReceive, &JobBuilder::receive);
      case TaskKind::kAllReduce:
        for (DeviceId device : plan_.participants[task]) {
          add(task, device, Queue::kCollective, &JobBuilder::collective);
        }
        return;
      case TaskKind::kOverhead:
        return;  // is part of what moving the bytes takes
    }
  }

  using Fill = void (JobBuilder::*)(Program&, Instruction&, BodyBuilder&);
  void add(TaskId task, DeviceId device, Queue queue, Fill fill) {
    Program& program = job_.programs[device];
    Instruction instruction;
    instruction.task = task;
    instruction.queue = queue;
    instruction.tensor = plan_.tensor[task];
    BodyBuilder body(view_, tables_[device.value()], program, instruction);
    (this->*fill)(program, instruction, body);
    body.finish();
    const InstructionId id = program.instructions.push_back(std::move(instruction));
    program.queues[static_cast<std::size_t>(queue)].push_back(id);
    instruction_of_[task].emplace_back(device, id);
  }

  // ---- what each kind of task does ----

  void compute(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const OpId op = plan_.op[task];
    body.call(op);
    if (view_.graph.op(op).phase == graph::Phase::kUpdate) capture_gradients(program, op, body);
    body.store_outputs(op, task);
    capture_loss(instruction, op, body);
  }

  void update(Program& program, Instruction& instruction, BodyBuilder& body) {
    const std::uint32_t chain = view_.chain_of[plan_.op[instruction.task]];
    ENSURE(chain != PlanView::kNone);
    const auto& ops = view_.problem.folded->chains[chain].ops;
    for (OpId op : ops) {
      body.call(op);
      capture_gradients(program, op, body);
    }
    // What is replaced may be read by any op of the chain: it is written last.
    for (OpId op : ops) {
      for (TensorId out : view_.graph.outputs(op)) {
        if (!out.valid() || !view_.graph.tensor(out).replaces.valid()) continue;
        body.store(body.value(out, OperandUse::kSame),
                   tables_[program.device.value()].outside(view_.graph.tensor(out).replaces));
      }
    }
  }

  void merge(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    std::vector<Register> parts;
    std::int64_t at = plan_.begin[task];
    for (BufferId buffer : plan_.reads[task]) {
      const TaskId maker = view_.maker[buffer];
      const std::int64_t begin = plan_.begin[maker];
      const std::int64_t end = std::min(plan_.end[maker], plan_.end[task]);
      Register part = value_in(body, buffer, tensor);
      part = body.cut(part, tensor, begin, plan_.end[maker], at, end);
      parts.push_back(part);
      at = end;
    }
    ENSURE(at == plan_.end[task]);
    body.store(body.join(std::move(parts), tensor),
               tables_[program.device.value()].buffer(plan_.allocates[task][0], tensor));
  }

  // `tensor` at the samples of a buffer that holds it or its base.
  Register value_in(BodyBuilder& body, BufferId buffer, TensorId tensor) {
    const TensorId held = plan_.buffers[buffer].tensor;
    if (held == tensor) return body.load(buffer, held);
    const TaskId maker = view_.maker[buffer];
    BodyStep step;
    step.kind = BodyStep::Kind::kCall;
    step.op = view_.graph.tensor(tensor).producer;
    ENSURE(step.op.valid() && view_.graph.op(step.op).alias);
    step.begin = plan_.begin[maker];
    step.end = plan_.end[maker];
    step.in = {value_in(body, buffer, view_.graph.inputs(step.op)[0])};
    return body.call_view(std::move(step), tensor);
  }

  void send(Program&, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    instruction.peer = plan_.device[task];
    instruction.action = Action::kSend;
    Register value;
    if (plan_.kind[task] == TaskKind::kPull || plan_.reads[task].empty()) {
      value = body.value(tensor, OperandUse::kSame);
    } else {
      const BufferId buffer = plan_.reads[task][0];
      const TaskId maker = view_.maker[buffer];
      value = bucketed(maker) ? body.value(tensor, OperandUse::kReduced)
                              : value_in(body, buffer, tensor);
      value = body.cut(value, tensor, plan_.begin[maker], plan_.end[maker], plan_.begin[task],
                       plan_.end[task]);
      if (view_.is_addend(task) && view_.is_mean(tensor)) {
        value = body.scale(value, view_.share(maker));
      }
      if (view_.sends_rows(task)) {
        instruction.action = Action::kSendRows;
        instruction.rows = view_.lookups(tensor, plan_.end[maker] - plan_.begin[maker]);
      }
    }
    instruction.values = {value};
  }

  bool bucketed(TaskId maker) const { return view_.bucket[maker].size() > 1; }

  void receive(Program& program, Instruction& instruction, BodyBuilder&) {
    const TaskId task = instruction.task;
    SlotTable& table = tables_[program.device.value()];
    instruction.peer = plan_.peer[task];
    instruction.action = Action::kReceive;
    instruction.samples = plan_.end[task] - plan_.begin[task];
    if (plan_.kind[task] == TaskKind::kPull) {
      instruction.resident = true;
      instruction.slots = {table.outside(instruction.tensor)};
      return;
    }
    if (view_.sends_rows(task)) {
      const TaskId maker = view_.maker[plan_.reads[task][0]];
      instruction.action = Action::kReceiveRows;
      instruction.rows = view_.lookups(instruction.tensor, plan_.end[maker] - plan_.begin[maker]);
    }
    instruction.slots = {table.buffer(plan_.allocates[task][0], instruction.tensor)};
  }

  void sum(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    SlotTable& table = tables_[program.device.value()];
    std::vector<Register> own, packed, received;
    BufferId result;
    for (BufferId buffer : plan_.reads[task]) {
      const TaskId maker = view_.maker[buffer];
      const bool arrived = compiler::is_communication(plan_.kind[maker]);
      Register value = body.load(buffer, tensor);
      if (!arrived && view_.is_mean(tensor)) value = body.scale(value, view_.share(maker));
      if (view_.gathers_rows(maker)) note_own_rows(program, instruction, maker);
      (!arrived ? own : view_.carries_rows(maker) ? packed : received).push_back(value);
      if (!arrived || !result.valid()) result = buffer;
    }
    instruction.in_place = plan_.allocates[task].empty();
    if (!instruction.in_place) result = plan_.allocates[task][0];
    std::vector<Register> all = own;
    all.insert(all.end(), packed.begin(), packed.end());
    all.insert(all.end(), received.begin(), received.end());
    if (view_.carries_rows(task)) {
      ENSURE(own.size() == 1);
      instruction.action = Action::kAddRows;
      instruction.values = all;
      instruction.packed = static_cast<std::uint32_t>(packed.size());
      instruction.slots = {table.buffer(result, tensor)};
      return;
    }
    body.store(body.add(all, instruction.in_place), table.buffer(result, tensor));
  }

  void note_own_rows(const Program& program, Instruction& instruction, TaskId gather) {
    const auto members = plan_.participants[gather];
    instruction.own_is_packed = true;
    instruction.own = std::find(members.begin(), members.end(), program.device) - members.begin();
  }

  void collective(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    SlotTable& table = tables_[program.device.value()];
    instruction.set = find_set(plan_.participants[task]);
    BufferId own_result;
    for (BufferId buffer : plan_.allocates[task]) {
      if (plan_.buffers[buffer].device == program.device) own_result = buffer;
    }
    if (view_.gathers_rows(task)) {
      instruction.action = Action::kGatherRows;
      const BufferId own = own_buffer(task, program.device, instruction.tensor);
      instruction.values = {body.load(own, instruction.tensor)};
      for (BufferId buffer : plan_.reads[task]) {
        const TaskId maker = view_.maker[buffer];
        instruction.rows =
            std::max(instruction.rows,
                     view_.lookups(instruction.tensor, plan_.end[maker] - plan_.begin[maker]));
      }
      instruction.slots = {table.buffer(own_result, instruction.tensor)};
      return;
    }
    instruction.action = Action::kAllReduce;
    instruction.in_place = !own_result.valid();
    for (TensorId tensor : view_.bucket[task]) {
      const TensorId old = view_.graph.tensor(tensor).replaces;
      if (old.valid()) {  // averaged where it stays
        const SlotId slot = table.outside(old);
        instruction.values.push_back(body.scale(
            body.load(slot), view_.is_mean(tensor) ? share_of(task, program, tensor) : 1.0));
        instruction.slots.push_back(slot);
        continue;
      }
      const BufferId own = own_buffer(task, program.device, tensor);
      const double share = view_.is_mean(tensor) ? view_.share(view_.maker[own]) : 1.0;
      instruction.values.push_back(body.scale(body.load(own, tensor), share));
      instruction.slots.push_back(table.buffer(own_result.valid() ? own_result : own, tensor));
    }
  }

  BufferId own_buffer(TaskId task, DeviceId device, TensorId tensor) const {
    for (BufferId buffer : plan_.reads[task]) {
      const auto& info = plan_.buffers[buffer];
      if (info.device == device && info.tensor == tensor) return buffer;
    }
    ENSURE(false);
    return {};
  }

  // The share of the slice on which a device made a value that it keeps in place.
  double share_of(TaskId collective, const Program& program, TensorId tensor) const {
    for (TaskId before : view_.predecessors[collective]) {
      if (plan_.device[before] != program.device) continue;
      const auto outputs = view_.graph.outputs(plan_.op[before]);
      if (std::find(outputs.begin(), outputs.end(), tensor) != outputs.end()) {
        return view_.share(before);
      }
    }
    ENSURE(false);
    return 0;
  }

  // ---- what is looked at from outside ----

  void capture_loss(const Instruction& instruction, OpId op, BodyBuilder& body) {
    const TensorId loss = view_.graph.loss();
    if (!loss.valid()) return;
    // The loss may be a view of what the op makes.
    TensorId base = loss;
    while (true) {
      const OpId producer = view_.graph.tensor(base).producer;
      if (!producer.valid() || !view_.graph.op(producer).alias ||
          !view_.splits.sliceable[producer]) {
        break;
      }
      base = view_.graph.inputs(producer)[0];
    }
    if (view_.graph.tensor(base).producer != op) return;
    const TaskId task = instruction.task;
    const graph::SplitKind kind = view_.splits.rules[base].kind;
    const bool partial = kind == graph::SplitKind::kSum || kind == graph::SplitKind::kMean;
    if (!partial && plan_.begin[task] != 0) return;
    body.capture(body.value(loss, OperandUse::kPartial),
                 {loss, view_.is_mean(base) ? view_.share(task) : 1.0, partial});
  }

  void capture_gradients(const Program& program, OpId op, BodyBuilder& body) {
    if (!options_.capture_gradients) return;
    for (TensorId in : view_.graph.inputs(op)) {
      if (view_.graph.tensor(in).role != TensorRole::kGradient) continue;
      const bool known = std::any_of(program.captures.begin(), program.captures.end(),
                                     [&](const Capture& c) { return c.tensor == in; });
      if (!known) body.capture(body.value(in, OperandUse::kReduced), {in, 1.0, false});
    }
  }

  // ---- who waits for whom ----

  void connect(TaskId task) {
    for (const auto& [device, id] : instruction_of_[task]) {
      Program& program = job_.programs[device];
      for (TaskId before : view_.predecessors[task]) {
        for (const auto& [other_device, other] : instruction_of_[before]) {
          if (other_device != device) continue;
          // Of one queue the earlier has ended anyway.
          if (program.instructions[other].queue == program.instructions[id].queue) continue;
          program.instructions[other].wakes.push_back(id);
          ++program.instructions[id].waits_for;
        }
      }
    }
  }

  void count_readers(Program& program) {
    SlotTable& table = tables_[program.device.value()];
    IdVector<SlotId, std::uint8_t> read_by_somebody(program.slots.size(), 0);
    for (Instruction& instruction : program.instructions) {
      for (BufferId buffer : plan_.reads[instruction.task]) {
        if (plan_.buffers[buffer].device != program.device) continue;
        for (const auto& [content, slot] : table.of_buffer(buffer)) {
          instruction.reads.push_back(slot);
          ++program.slots[slot].readers;
        }
      }
    }
    for (Instruction& instruction : program.instructions) {
      for (BufferId buffer : plan_.allocates[instruction.task]) {
        if (plan_.buffers[buffer].device != program.device) continue;
        for (const auto& [content, slot] : table.of_buffer(buffer)) {
          if (program.slots[slot].readers == 0) instruction.drops.push_back(slot);
        }
      }
    }
  }

  PlanView view_;
  const compiler::Plan& plan_;
  JobOptions options_;
  Job job_;
  std::vector<SlotTable> tables_;
  IdVector<TaskId, std::vector<std::pair<DeviceId, InstructionId>>> instruction_of_;
};

}  // namespace

Job make_job(std::shared_ptr<const cost::Problem> problem, const compiler::Plan& plan,
             std::span<const TaskId> dispatch, const JobOptions& options,
             const std::string& source) {
  check_dispatch(plan, dispatch, source);
  check_runnable(*problem, source);
  return JobBuilder(std::move(problem), plan, options).build(dispatch);
}

}  // namespace heterog::runtime

// Splits a plan into the instructions of its devices, in queues, with who waits for whom.
#include "runtime/program/program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "operators/facts.h"
#include "runtime/program/body.h"
#include "runtime/program/check_job.h"
#include "runtime/program/lanes.h"

namespace heterog::runtime {
namespace {

using compiler::Carried;
using compiler::Contribution;
using compiler::Encoding;
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
      lanes_to_.push_back(lanes_of_peers(*job_.problem->cluster, device, Way::kTo));
      lanes_from_.push_back(lanes_of_peers(*job_.problem->cluster, device, Way::kFrom));
    }
    instruction_of_.resize(plan.task_count());
    for (TaskId task : plan.task_ids()) {
      if (compiler::is_collective(plan.kind[task])) find_set(plan.participants[task]);
    }
    for (TensorId tensor : view_.graph.tensor_ids()) {
      if (is_looked_at(view_.graph, tensor)) outputs_.emplace_back(tensor, base_of(tensor));
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
      case TaskKind::kAccumulate:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::sum);
      case TaskKind::kUpdate:
        return add(task, plan_.device[task], Queue::kCompute, &JobBuilder::update);
      case TaskKind::kTransfer:
      case TaskKind::kPush:
      case TaskKind::kPull:
        add(task, plan_.peer[task], Queue::kSend, &JobBuilder::send);
        return add(task, plan_.device[task], Queue::kReceive, &JobBuilder::receive);
      case TaskKind::kAllReduce:
      case TaskKind::kReduceScatter:
      case TaskKind::kAllGather:
        for (DeviceId device : plan_.participants[task]) {
          add(task, device, Queue::kCollective, &JobBuilder::collective);
        }
        return;
      case TaskKind::kTurn:  // the order of the compute queue is that of the turns
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
    capture_outputs(instruction, op, body);
  }

  // The chains of all parameters side by side, op by op.
  void update(Program& program, Instruction& instruction, BodyBuilder& body) {
    std::vector<const graph::UpdateChain*> chains;
    for (TensorId parameter : plan_.updated[instruction.task]) {
      chains.push_back(&graph::chain_of(*view_.problem.folded, parameter));
      ENSURE(chains.back()->form == chains.front()->form);
    }
    for (const graph::UpdateChain* chain : chains) take_own_rows(program, *chain, body);
    for (std::size_t i = 0; i < chains.front()->ops.size(); ++i) {
      std::vector<OpId> ops;
      for (const graph::UpdateChain* chain : chains) ops.push_back(chain->ops[i]);
      set_rows(program, *chains.front(), body);
      switch (chains.front()->calls[i]) {
        case graph::SharedCall::kApart:
          for (std::size_t c = 0; c < chains.size(); ++c) {
            set_rows(program, *chains[c], body);
            body.call(ops[c]);
          }
          break;
        case graph::SharedCall::kLists:
          body.call_lists(ops);
          break;
        case graph::SharedCall::kOnce:
          body.call_once(ops);
          break;
      }
      for (std::size_t c = 0; c < chains.size(); ++c) {
        capture_gradients(program, ops[c], body, own_rows(chains[c]->parameter, program.device));
      }
    }
    // What is replaced may be read by any op of its chain: it is written last.
    for (const graph::UpdateChain* chain : chains) {
      for (OpId op : chain->ops) {
        for (TensorId out : view_.graph.outputs(op)) {
          if (!out.valid() || !view_.graph.tensor(out).replaces.valid()) continue;
          const TensorId old = view_.graph.tensor(out).replaces;
          const SlotId slot = tables_[program.device.value()].outside(old);
          const compiler::OwnedRows* own = own_rows(old, program.device);
          if (own && old == chain->parameter && !has_own_rows_alone(program, old)) {
            body.store_rows(body.value(out, OperandUse::kSame), slot, own->begin, own->end);
          } else {
            body.store(body.value(out, OperandUse::kSame), slot);
          }
        }
      }
    }
  }

  // Null: the tensor is not dealt by rows.
  const compiler::OwnedRows* own_rows(TensorId tensor, DeviceId device) const {
    const auto rows = plan_.rows_of(tensor);
    const auto own = std::ranges::find(rows, device, &compiler::OwnedRows::device);
    return own == rows.end() ? nullptr : &*own;
  }

  // Of a parameter: a host that serves some rows has no others.
  bool has_own_rows_alone(const Program& program, TensorId tensor) const {
    return view_.problem.cluster->is_host(program.device) && !plan_.rows_of(tensor).empty() &&
           view_.graph.tensor(tensor).role == TensorRole::kParameter;
  }

  void set_rows(const Program& program, const graph::UpdateChain& chain, BodyBuilder& body) const {
    const compiler::OwnedRows* own = own_rows(chain.parameter, program.device);
    body.set_rows(own ? own->count() : 0);
  }

  // Of a sharded parameter, and of a gradient that came whole, the rows that are updated here. Of
  // its state there are no others, nor of a gradient that was scattered.
  void take_own_rows(const Program& program, const graph::UpdateChain& chain, BodyBuilder& body) {
    const compiler::OwnedRows* own = own_rows(chain.parameter, program.device);
    if (!own) return;
    const auto shape = view_.graph.shape(chain.parameter);
    std::set<TensorId> cut;
    for (OpId op : chain.ops) {
      const auto inputs = view_.graph.inputs(op);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const TensorId tensor = inputs[i];
        const OpId maker = view_.graph.tensor(tensor).producer;
        if (std::ranges::binary_search(chain.ops, maker)) continue;
        const bool of_rows = tensor != chain.parameter && !plan_.rows_of(tensor).empty();
        if (of_rows || !std::ranges::equal(view_.graph.shape(tensor), shape)) continue;
        if (has_own_rows_alone(program, tensor) || !cut.insert(tensor).second) continue;
        const Register whole = body.value(tensor, view_.splits.uses[op][i]);
        body.set_value(tensor, body.rows(whole, own->begin, own->end));
      }
    }
  }

  void merge(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    std::vector<Register> parts;
    for (const Contribution& one : plan_.contributions_to(task)) {
      if (one.begin < one.end) parts.push_back(samples_in(body, one, tensor));
    }
    if (parts.empty()) parts.push_back(body.no_samples(tensor, plan_.begin[task]));
    body.store(body.join(std::move(parts), tensor),
               tables_[program.device.value()].buffer(plan_.allocates[task][0], tensor));
  }

  // The samples of `tensor` that are given out of a buffer.
  Register samples_in(BodyBuilder& body, const Contribution& given, TensorId tensor) {
    const TaskId maker = view_.maker[given.buffer];
    const Register held = view_.shares_buffer(maker) ? body.value(tensor, OperandUse::kReduced)
                                                     : value_in(body, given.buffer, tensor);
    return body.cut(held, tensor, plan_.begin[maker], plan_.end[maker], given.begin, given.end);
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

  void send(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    instruction.peer = plan_.device[task];
    instruction.lane = lanes_to_[program.device][instruction.peer];
    instruction.action = Action::kSend;
    const Carried& carried = plan_.carried_by(task).front();
    const Contribution& given = plan_.contributions_to(task).front();
    Register value;
    if (given.encoding == Encoding::kPart) {
      value = part_of(program, body, given, tensor);
    } else if (!given.buffer.valid()) {  // what stays: a new parameter, say
      value = body.value(tensor, OperandUse::kSame);
    } else if (given.encoding == Encoding::kRows) {
      value = value_in(body, given.buffer, tensor);
      instruction.action = Action::kSendRows;
      instruction.rows = given.end;
    } else if (given.begin == given.end) {
      value = body.no_samples(tensor, given.begin);
    } else {
      value = samples_in(body, given, tensor);
    }
    if (carried.weighted) value = body.scale(value, given.weight);
    instruction.values = {value};
    note_compressed(instruction);
  }

  // Of a part that one of several servers has, from which row on.
  void note_compressed(Instruction& instruction) const {
    const TaskId task = instruction.task;
    if (!plan_.is_compressed(task)) return;
    const bool is_part = plan_.encoding_of(task) == Encoding::kPart;
    const std::int64_t first_row = is_part ? plan_.contributions_to(task).front().begin : 0;
    for (const Carried& one : plan_.carried_by(task)) {
      instruction.compressed.push_back({one.tensor, first_row, one.compression});
    }
  }

  void receive(Program& program, Instruction& instruction, BodyBuilder&) {
    const TaskId task = instruction.task;
    SlotTable& table = tables_[program.device.value()];
    instruction.peer = plan_.peer[task];
    instruction.lane = lanes_from_[program.device][instruction.peer];
    instruction.action = Action::kReceive;
    instruction.samples = plan_.end[task] - plan_.begin[task];
    note_compressed(instruction);
    const Contribution& given = plan_.contributions_to(task).front();
    if (given.encoding == Encoding::kPart) {
      instruction.first_row = given.begin;
      instruction.rows = given.end - given.begin;
    }
    if (plan_.kind[task] == TaskKind::kPull) {
      instruction.resident = true;
      instruction.slots = {table.outside(instruction.tensor)};
      return;
    }
    if (given.encoding == Encoding::kRows) {
      instruction.action = Action::kReceiveRows;
      instruction.rows = given.end;
    }
    instruction.slots = {table.buffer(plan_.allocates[task][0], instruction.tensor)};
  }

  // Rows of what stays, or of a buffer that holds all or these alone.
  Register part_of(const Program& program, BodyBuilder& body, const Contribution& given,
                   TensorId tensor) {
    if (!given.buffer.valid()) {
      const Register held = body.value(tensor, OperandUse::kSame);
      return has_own_rows_alone(program, tensor) ? held : body.rows(held, given.begin, given.end);
    }
    const TaskId maker = view_.maker[given.buffer];
    const bool has_these_alone =
        has_payload(plan_.kind[maker]) && plan_.encoding_of(maker) == Encoding::kPart;
    const Register held = value_in(body, given.buffer, tensor);
    return has_these_alone ? held : body.rows(held, given.begin, given.end);
  }

  // The first contribution is the device's own, where it has one; its memory may take the result.
  // Rows alone are added to zeros.
  void sum(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    const TensorId tensor = plan_.tensor[task];
    SlotTable& table = tables_[program.device.value()];
    const bool weighted = plan_.carried_by(task).front().weighted;
    const auto given = plan_.contributions_to(task);
    instruction.in_place = plan_.allocates[task].empty();
    const BufferId result =
        instruction.in_place ? given.front().buffer : plan_.allocates[task].front();
    std::vector<Register> addends;
    if (given.front().encoding == Encoding::kRows) {  // of one device, which has the rest
      addends.push_back(body.zeros(tensor));
      instruction.in_place = true;
    }
    for (const Contribution& one : given) {
      if (one.encoding == Encoding::kRows) note_rows(program.device, one, given, instruction);
      Register value = one.encoding == Encoding::kPart ? part_of(program, body, one, tensor)
                                                       : body.load(one.buffer, tensor);
      if (weighted) value = body.scale(value, one.weight);
      // Rows that were gathered lie in one buffer.
      if (addends.empty() || addends.back() != value) addends.push_back(value);
    }
    if (instruction.packed > 0) {
      instruction.action = Action::kAddRows;
      instruction.values = addends;
      instruction.slots = {table.buffer(result, tensor)};
      return;
    }
    body.store(body.add(addends, instruction.in_place), table.buffer(result, tensor));
  }

  // Rows of this device among those that were gathered take the place of those that it has.
  static void note_rows(DeviceId device, const Contribution& one,
                        std::span<const Contribution> given, Instruction& instruction) {
    const auto first = std::ranges::find(given, one.buffer, &Contribution::buffer);
    const std::int64_t index = &one - &*first;
    if (index == 0) ++instruction.packed;
    if (one.device != device) return;
    instruction.own_is_packed = true;
    instruction.own = index;
  }

  void collective(Program& program, Instruction& instruction, BodyBuilder& body) {
    const TaskId task = instruction.task;
    SlotTable& table = tables_[program.device.value()];
    const auto members = plan_.participants[task];
    instruction.set = find_set(members);
    const auto given = plan_.contributions_to(task);
    const auto index =
        static_cast<std::size_t>(std::ranges::find(members, program.device) - members.begin());
    BufferId own_result;
    for (BufferId buffer : plan_.allocates[task]) {
      const compiler::Plan::Buffer& one = plan_.buffers[buffer];
      if (one.device == program.device && !one.is_scratch) own_result = buffer;
    }
    instruction.in_place = !own_result.valid();
    note_compressed(instruction);
    for (const Carried& carried : plan_.carried_by(task)) {
      const double weight = carried.weighted ? given[index].weight : 1.0;
      if (plan_.kind[task] == TaskKind::kAllGather && given.front().encoding == Encoding::kDense) {
        // A new parameter, whose own rows are in their place.
        const SlotId slot = table.outside(carried.tensor);
        instruction.resident = true;
        instruction.values.push_back(body.load(slot));
        instruction.slots.push_back(slot);
        continue;
      }
      if (view_.lies_in_rows[carried.tensor]) {
        instruction.values.push_back(body.load(table.outside(carried.tensor)));
        instruction.slots.push_back(table.buffer(own_result, carried.tensor));
        continue;
      }
      const TensorId old = view_.graph.tensor(carried.tensor).replaces;
      if (old.valid()) {  // averaged where it stays
        const SlotId slot = table.outside(old);
        instruction.values.push_back(body.scale(body.load(slot), weight));
        instruction.slots.push_back(slot);
        continue;
      }
      const BufferId own = own_buffer(task, program.device, carried.tensor);
      instruction.values.push_back(body.scale(value_in(body, own, carried.tensor), weight));
      instruction.slots.push_back(
          table.buffer(own_result.valid() ? own_result : own, carried.tensor));
    }
    switch (plan_.kind[task]) {
      case TaskKind::kAllReduce:
        instruction.action = Action::kAllReduce;
        return;
      case TaskKind::kReduceScatter:
        instruction.action = Action::kReduceScatter;
        instruction.in_place = true;  // nobody else reads the gradient
        break;
      default:
        if (given.front().encoding == Encoding::kRows) {
          instruction.action = Action::kGatherRows;
          instruction.rows = given.front().end;
          return;
        }
        instruction.action =
            given.front().encoding == Encoding::kPart ? Action::kGatherParts : Action::kAllGather;
    }
    instruction.part = index;
    for (const Carried& carried : plan_.carried_by(task)) {
      comm::Cuts& cuts = instruction.cuts.emplace_back();
      cuts.push_back(0);
      for (const compiler::OwnedRows& own : plan_.rows_of(carried.tensor)) cuts.push_back(own.end);
    }
  }

  BufferId own_buffer(TaskId task, DeviceId device, TensorId tensor) const {
    for (BufferId buffer : plan_.reads[task]) {
      const auto& info = plan_.buffers[buffer];
      if (info.device != device) continue;
      if (info.tensor == tensor || info.tensor == view_.graph.root(tensor)) return buffer;
    }
    ENSURE(false);
    return {};
  }

  // ---- what is looked at from outside ----

  // An output may be a view of what an op makes.
  TensorId base_of(TensorId tensor) const {
    while (true) {
      const OpId producer = view_.graph.tensor(tensor).producer;
      if (!producer.valid() || !view_.graph.op(producer).alias ||
          !view_.splits.sliceable[producer]) {
        return tensor;
      }
      tensor = view_.graph.inputs(producer)[0];
    }
  }

  void capture_outputs(const Instruction& instruction, OpId op, BodyBuilder& body) {
    for (const auto& [output, base] : outputs_) {
      if (view_.graph.tensor(base).producer != op) continue;
      const TaskId task = instruction.task;
      const graph::SplitKind kind = view_.splits.rules[base].kind;
      const bool partial = kind == graph::SplitKind::kSum || kind == graph::SplitKind::kMean;
      const bool sliced = kind == graph::SplitKind::kConcat;
      if (!partial && !sliced && plan_.begin[task] != 0) continue;
      body.capture(body.value(output, OperandUse::kPartial),
                   {.tensor = output,
                    .weight = view_.is_mean(base) ? view_.share(task) : 1.0,
                    .partial = partial,
                    .begin = sliced ? plan_.begin[task] : 0,
                    .end = sliced ? plan_.end[task] : plan_.batch});
    }
  }

  // `own`: if not null, of a gradient that has rows it is these.
  void capture_gradients(const Program& program, OpId op, BodyBuilder& body,
                         const compiler::OwnedRows* own = nullptr) {
    if (!options_.capture_gradients) return;
    for (TensorId in : view_.graph.inputs(op)) {
      if (view_.graph.tensor(in).role != TensorRole::kGradient) continue;
      const bool known = std::any_of(program.captures.begin(), program.captures.end(),
                                     [&](const Capture& c) { return c.tensor == in; });
      if (!known) {
        Capture capture{.tensor = in, .end = plan_.batch};
        if (own) {
          capture.first_row = own->begin;
          capture.rows = own->count();
        }
        body.capture(body.value(in, OperandUse::kReduced), capture);
      }
    }
  }

  // ---- who waits for whom ----

  void connect(TaskId task) {
    for (const auto& [device, id] : instruction_of_[task]) {
      Program& program = job_.programs[device];
      for (TaskId before : view_.predecessors[task]) {
        for (const auto& [other_device, other] : instruction_of_[before]) {
          if (other_device != device) continue;
          Instruction& earlier = program.instructions[other];
          Instruction& later = program.instructions[id];
          // Of one queue and lane the earlier has ended anyway.
          if (earlier.queue == later.queue && earlier.lane == later.lane) continue;
          earlier.wakes.push_back(id);
          ++later.waits_for;
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
  IdVector<DeviceId, IdVector<DeviceId, std::uint32_t>> lanes_to_, lanes_from_;  // by peer
  std::vector<std::pair<TensorId, TensorId>> outputs_;  // and what each is a view of, or itself
  IdVector<TaskId, std::vector<std::pair<DeviceId, InstructionId>>> instruction_of_;
};

}  // namespace

bool is_looked_at(const graph::ModelGraph& graph, TensorId tensor) {
  const graph::Tensor& info = graph.tensor(tensor);
  return info.role == TensorRole::kOutput && !info.replaces.valid();
}

Job make_job(std::shared_ptr<const cost::Problem> problem, const compiler::Plan& plan,
             std::span<const TaskId> dispatch, const JobOptions& options,
             const std::string& source) {
  check_dispatch(plan, dispatch, source);
  check_runnable(*problem, source);
  return JobBuilder(std::move(problem), plan, options).build(dispatch);
}

}  // namespace heterog::runtime

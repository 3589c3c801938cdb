// Finds what a task reads in the buffers that the plan gives it, and views, cuts and calls.
#include "runtime/program/body.h"

#include <algorithm>
#include <set>

#include "operators/running_statistics.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {

using compiler::TaskKind;
using graph::OperandUse;
using graph::SplitKind;
using graph::TensorRole;

namespace {

Csr<TaskId, TaskId> reversed(const compiler::Plan& plan) {
  std::vector<std::pair<TaskId, TaskId>> pairs;
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) pairs.emplace_back(next, task);
  }
  return Csr<TaskId, TaskId>::from_pairs(plan.task_count(), pairs);
}

}  // namespace

PlanView::PlanView(const cost::Problem& problem, const compiler::Plan& plan)
    : problem(problem),
      graph(*problem.graph),
      splits(*problem.splits),
      plan(plan),
      maker(plan.buffers.size()),
      lies_in_rows(problem.graph->tensor_count(), 0),
      predecessors(reversed(plan)) {
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.allocates[task]) maker[buffer] = task;
    if (plan.kind[task] != TaskKind::kAllGather) continue;
    if (plan.encoding_of(task) != compiler::Encoding::kPart) continue;
    for (const compiler::Carried& one : plan.carried_by(task)) lies_in_rows[one.tensor] = 1;
  }
}

SlotId SlotTable::outside(TensorId tensor) {
  SlotId& slot = program_.slot_of[tensor];
  if (!slot.valid()) {
    const bool input = view_.graph.tensor(tensor).role == TensorRole::kInput;
    Slot made{input ? Slot::Kind::kInput : Slot::Kind::kResident, tensor};
    // A device reads all of a trained parameter, a host that serves some rows of it these alone.
    const bool of_rows = view_.graph.tensor(tensor).role == TensorRole::kOptimizerState ||
                         view_.lies_in_rows[tensor] ||
                         (view_.graph.tensor(tensor).role == TensorRole::kParameter &&
                          view_.problem.cluster->is_host(program_.device));
    if (of_rows) {
      for (const compiler::OwnedRows& own : view_.plan.rows_of(tensor)) {
        if (own.device != program_.device) continue;
        made.begin = own.begin;
        made.end = own.end;
      }
    }
    slot = program_.slots.push_back(made);
  }
  return slot;
}

SlotId SlotTable::buffer(BufferId buffer, TensorId content) {
  auto [at, is_new] = buffers_[buffer].try_emplace(content);
  if (is_new) {
    EXPECT(view_.plan.buffers[buffer].device == program_.device);
    at->second = program_.slots.push_back({Slot::Kind::kBuffer, content, 0});
  }
  return at->second;
}

BodyBuilder::BodyBuilder(const PlanView& view, SlotTable& slots, Program& program,
                         Instruction& instruction)
    : view_(view),
      slots_(slots),
      program_(program),
      instruction_(instruction),
      begin_(view.plan.begin[instruction.task]),
      end_(view.plan.end[instruction.task]) {}

// A row of samples, of which a slice may be wanted.
bool BodyBuilder::samples_of(TensorId tensor) const {
  return graph::seen_rule(view_.graph, view_.splits, tensor).kind == SplitKind::kConcat;
}

std::vector<BodyBuilder::Holder> BodyBuilder::holders(TensorId content) const {
  const compiler::Plan& plan = view_.plan;
  std::vector<Holder> found;
  for (BufferId buffer : plan.reads[instruction_.task]) {
    if (plan.buffers[buffer].device != program_.device) continue;
    const TaskId maker = view_.maker[buffer];
    const auto holds_content = [&](const compiler::Carried& one) { return one.tensor == content; };
    const bool holds = view_.shares_buffer(maker)
                           ? std::ranges::any_of(plan.carried_by(maker), holds_content)
                           : plan.buffers[buffer].tensor == content;
    if (!holds) continue;
    found.push_back(
        {buffer, plan.begin[maker], plan.end[maker], plan.kind[maker] == TaskKind::kCompute});
  }
  return found;
}

const BodyBuilder::Holder* BodyBuilder::choose(const std::vector<Holder>& found, TensorId tensor,
                                               OperandUse use) const {
  const bool samples = samples_of(tensor);
  const Holder* best = nullptr;
  for (const Holder& holder : found) {
    if (samples && (holder.begin > begin_ || holder.end < end_)) continue;
    if (!best ||
        (holder.partial == (use == OperandUse::kPartial) && best->partial != holder.partial)) {
      best = &holder;
    }
  }
  return best;
}

Register BodyBuilder::add_step(BodyStep step) {
  Register result = kNoRegister;
  if (step.out.empty() && step.kind != BodyStep::Kind::kStore &&
      step.kind != BodyStep::Kind::kStoreRows && step.kind != BodyStep::Kind::kCapture) {
    result = instruction_.registers++;
    step.out = {result};
  }
  instruction_.body.push_back(std::move(step));
  return result;
}

Register BodyBuilder::load(SlotId slot) {
  auto [at, is_new] = loaded_.try_emplace(slot, kNoRegister);
  if (is_new) at->second = add_step({.kind = BodyStep::Kind::kLoad, .slot = slot});
  return at->second;
}

void BodyBuilder::store(Register value, SlotId slot) {
  const bool resident = program_.slots[slot].kind != Slot::Kind::kBuffer;
  add_step({.kind = BodyStep::Kind::kStore, .in_place = resident, .slot = slot, .in = {value}});
}

Register BodyBuilder::rows(Register value, std::int64_t begin, std::int64_t end) {
  return add_step({.kind = BodyStep::Kind::kRows, .begin = begin, .end = end, .in = {value}});
}

void BodyBuilder::store_rows(Register value, SlotId slot, std::int64_t begin, std::int64_t end) {
  add_step({.kind = BodyStep::Kind::kStoreRows,
            .slot = slot,
            .begin = begin,
            .end = end,
            .in = {value}});
}

void BodyBuilder::capture(Register value, const Capture& capture) {
  program_.captures.push_back(capture);
  add_step({.kind = BodyStep::Kind::kCapture,
            .capture = static_cast<std::uint32_t>(program_.captures.size() - 1),
            .in = {value}});
}

Register BodyBuilder::scale(Register value, double factor) {
  if (factor == 1) return value;
  return add_step({.kind = BodyStep::Kind::kScale, .factor = factor, .in = {value}});
}

Register BodyBuilder::add(std::vector<Register> addends, bool in_place) {
  if (addends.size() == 1) return addends.front();
  return add_step({.kind = BodyStep::Kind::kAdd, .in_place = in_place, .in = std::move(addends)});
}

Register BodyBuilder::join(std::vector<Register> parts, TensorId tensor) {
  if (parts.size() == 1) return parts.front();
  const graph::SplitRule rule = graph::seen_rule(view_.graph, view_.splits, tensor);
  return add_step({.kind = BodyStep::Kind::kJoin,
                   .cut = {.dim = rule.dim, .outer = rule.outer},
                   .in = std::move(parts)});
}

Register BodyBuilder::cut(Register value, TensorId tensor, std::int64_t held_begin,
                          std::int64_t held_end, std::int64_t begin, std::int64_t end) {
  if (held_begin == begin && held_end == end) return value;
  const graph::SplitRule rule = graph::seen_rule(view_.graph, view_.splits, tensor);
  if (rule.kind != SplitKind::kConcat) return value;
  ENSURE(held_begin <= begin && end <= held_end);
  return add_step(
      {.kind = BodyStep::Kind::kCut,
       .cut = {rule.dim, rule.outer, held_end - held_begin, begin - held_begin, end - begin},
       .in = {value}});
}

Register BodyBuilder::zeros(TensorId tensor) {
  return add_step({.kind = BodyStep::Kind::kZeros, .tensor = tensor, .begin = begin_, .end = end_});
}

Register BodyBuilder::no_samples(TensorId tensor, std::int64_t at) {
  return add_step({.kind = BodyStep::Kind::kZeros, .tensor = tensor, .begin = at, .end = at});
}

Register BodyBuilder::value(TensorId tensor, OperandUse use) {
  const bool partial = use == OperandUse::kPartial;
  const auto key = std::pair(tensor, partial || use == OperandUse::kOnce);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (const auto made = made_.find(tensor); made != made_.end()) return made->second;
  const auto remember = [&](Register value) { return known_[key] = value; };
  if (view_.graph.tensor(tensor).producer.valid() &&
      view_.graph.elements(tensor, view_.plan.batch) == 0) {
    return remember(zeros(tensor));  // nobody stores or sends what has no elements
  }
  // A kSame addend to partial sums counts once (docs/design.md §4.2).
  if (use == OperandUse::kOnce && begin_ != 0) return remember(zeros(tensor));

  const std::vector<Holder> found = holders(tensor);
  if (const Holder* holder = choose(found, tensor, use)) {
    const Register loaded = load(holder->buffer, tensor);
    const bool own = holder->partial && holder->begin == begin_ && holder->end == end_;
    if (partial && !own && view_.is_mean(tensor)) {
      // The total is an addend of the first slice, whose share of it will count.
      return remember(scale(
          loaded, static_cast<double>(view_.plan.batch) / static_cast<double>(end_ - begin_)));
    }
    return remember(cut(loaded, tensor, holder->begin, holder->end, begin_, end_));
  }
  const OpId producer = view_.graph.tensor(tensor).producer;
  if (!producer.valid()) {
    return remember(cut(load(slots_.outside(tensor)), tensor, 0, view_.plan.batch, begin_, end_));
  }
  if (view_.graph.op(producer).alias && view_.splits.sliceable[producer]) {
    BodyStep step{.kind = BodyStep::Kind::kCall, .op = producer, .begin = begin_, .end = end_};
    step.in = {value(view_.graph.inputs(producer)[0], use)};
    return remember(call_view(std::move(step), tensor));
  }
  if (const TensorId old = view_.graph.tensor(tensor).replaces; old.valid()) {
    return remember(load(slots_.outside(old)));  // written there by the op that made it
  }
  // Partial sums over other slices: their total is an addend of the first instance alone.
  ENSURE(partial && begin_ != 0);
  return remember(zeros(tensor));
}

Register BodyBuilder::call_view(BodyStep step, TensorId tensor) {
  Register wanted = kNoRegister;
  for (TensorId out : view_.graph.outputs(step.op)) {
    step.out.push_back(out == tensor ? wanted = instruction_.registers++ : kNoRegister);
  }
  instruction_.body.push_back(std::move(step));
  return wanted;
}

bool BodyBuilder::is_empty_slice_of(OpId op) const {
  return begin_ == end_ && std::ranges::any_of(view_.graph.outputs(op), [&](TensorId out) {
           return out.valid() && view_.splits.rules[out].kind != SplitKind::kSame;
         });
}

void BodyBuilder::make_nothing(OpId op) {
  for (TensorId out : view_.graph.outputs(op)) {
    if (!out.valid()) continue;
    const SplitKind kind = view_.splits.rules[out].kind;
    const bool adds_up = kind == SplitKind::kSum || kind == SplitKind::kMean;
    made_[out] = add_step({.kind = BodyStep::Kind::kZeros,
                           .tensor = out,
                           .begin = adds_up ? 0 : begin_,
                           .end = adds_up ? view_.plan.batch : end_});
  }
}

void BodyBuilder::call(OpId op) {
  if (is_empty_slice_of(op)) return make_nothing(op);
  const auto inputs = view_.graph.inputs(op);
  const auto uses = view_.splits.uses[op];
  BodyStep step;
  step.kind =
      is_drawn_by_counter(view_.graph, op) ? BodyStep::Kind::kRandom : BodyStep::Kind::kCall;
  step.op = op;
  step.begin = begin_;
  step.end = end_;
  step.rows = rows_;
  for (std::size_t i = 0; i < inputs.size(); ++i) step.in.push_back(value(inputs[i], uses[i]));
  for (TensorId out : view_.graph.outputs(op)) {
    step.out.push_back(out.valid() ? instruction_.registers++ : kNoRegister);
    if (out.valid()) made_[out] = step.out.back();
  }
  instruction_.body.push_back(std::move(step));
}

void BodyBuilder::call_once(const std::vector<OpId>& ops) {
  const auto first = view_.graph.outputs(ops.front());
  call(ops.front());
  for (OpId op : std::span(ops).subspan(1)) {
    const auto outputs = view_.graph.outputs(op);
    if (!std::ranges::equal(outputs, first, {}, &TensorId::valid, &TensorId::valid)) {
      call(op);  // another of its results is wanted
      continue;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].valid()) made_[outputs[i]] = made_.at(first[i]);
    }
  }
}

void BodyBuilder::call_lists(const std::vector<OpId>& ops) {
  if (ops.size() == 1 && !view_.graph.facts(ops.front()).multi_tensor) return call(ops.front());
  BodyStep step;
  step.kind = BodyStep::Kind::kLists;
  step.op = ops.front();
  step.ops = ops;
  step.begin = begin_;
  step.end = end_;
  for (OpId op : ops) {
    const auto inputs = view_.graph.inputs(op);
    const auto uses = view_.splits.uses[op];
    for (std::size_t i = 0; i < inputs.size(); ++i) step.in.push_back(value(inputs[i], uses[i]));
  }
  for (OpId op : ops) {
    for (TensorId out : view_.graph.outputs(op)) {
      step.out.push_back(out.valid() ? instruction_.registers++ : kNoRegister);
      if (out.valid()) made_[out] = step.out.back();
    }
  }
  instruction_.body.push_back(std::move(step));
}

void BodyBuilder::store_outputs(OpId op, TaskId task) {
  for (TensorId out : view_.graph.outputs(op)) {
    if (!out.valid()) continue;
    const Register made = made_.at(out);
    if (const TensorId old = view_.graph.tensor(out).replaces; old.valid()) {
      store(made, slots_.outside(old));
      continue;
    }
    for (BufferId buffer : view_.plan.allocates[task]) {
      if (view_.plan.buffers[buffer].tensor == out) store(made, slots_.buffer(buffer, out));
    }
  }
}

void BodyBuilder::finish() {
  note_last_reads();
  for (std::size_t i = 0; i < instruction_.body.size(); ++i) {
    if (instruction_.body[i].kind == BodyStep::Kind::kCall) note_overwritable(i);
    if (replaces_operands(instruction_.body[i])) note_replaced(i);
  }
}

// What stays between steps, if this body replaces it later on; what a buffer of the plan holds; and
// what this body made itself.
void BodyBuilder::note_overwritable(std::size_t call) {
  std::vector<BodyStep>& body = instruction_.body;
  BodyStep& step = body[call];
  if (step.in.empty()) return;
  const Register first = step.in[0];
  if (std::find(step.dead.begin(), step.dead.end(), first) == step.dead.end()) return;
  const auto loads = [&](const BodyStep& earlier) {
    return earlier.kind == BodyStep::Kind::kLoad && earlier.out[0] == first;
  };
  const auto load = std::find_if(body.begin(), body.begin() + static_cast<long>(call), loads);
  step.in_place = true;
  if (load->kind != BodyStep::Kind::kLoad || load->out[0] != first) return;
  step.slot = load->slot;
  const auto replaces = [&](const BodyStep& later) {
    return later.kind == BodyStep::Kind::kStore && later.slot == step.slot;
  };
  const Slot::Kind kind = program_.slots[step.slot].kind;
  const bool replaced = std::any_of(body.begin() + static_cast<long>(call), body.end(), replaces);
  step.in_place = kind == Slot::Kind::kBuffer || (kind == Slot::Kind::kResident && replaced);
}

// Whether it can write results over operands other than its first.
bool BodyBuilder::replaces_operands(const BodyStep& step) const {
  return step.kind == BodyStep::Kind::kLists ||
         (step.kind == BodyStep::Kind::kCall &&
          operators::makes_running_statistics(view_.graph.facts(step.op)));
}

void BodyBuilder::note_replaced(std::size_t call) {
  std::vector<BodyStep>& body = instruction_.body;
  BodyStep& step = body[call];
  std::map<Register, SlotId> loaded_from;
  std::set<SlotId> stored;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i < call && body[i].kind == BodyStep::Kind::kLoad)
      loaded_from[body[i].out[0]] = body[i].slot;
    if (i > call && body[i].kind == BodyStep::Kind::kStore) stored.insert(body[i].slot);
  }
  for (Register r : step.in) {
    const auto load = loaded_from.find(r);
    const bool dies = std::find(step.dead.begin(), step.dead.end(), r) != step.dead.end() &&
                      std::count(step.in.begin(), step.in.end(), r) == 1;
    const bool resident =
        load != loaded_from.end() && program_.slots[load->second].kind == Slot::Kind::kResident;
    step.replaced.push_back(dies && resident && stored.contains(load->second) ? load->second
                                                                              : SlotId());
  }
}

void BodyBuilder::note_last_reads() {
  std::vector<std::size_t> last(instruction_.registers, 0);
  std::vector<BodyStep>& body = instruction_.body;
  for (std::size_t i = 0; i < body.size(); ++i) {
    for (Register r : body[i].in) last[r] = i;
    for (Register r : body[i].out) {
      if (r != kNoRegister) last[r] = i;
    }
  }
  for (Register r : instruction_.values) last[r] = body.size();
  for (Register r = 0; r < instruction_.registers; ++r) {
    if (last[r] < body.size()) body[last[r]].dead.push_back(r);
  }
}

}  // namespace heterog::runtime

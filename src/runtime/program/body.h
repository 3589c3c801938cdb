// Turns a task of a plan into the steps that one device takes for it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "runtime/program/program.h"

namespace heterog::runtime {

// A plan, and what its tasks and buffers say of each other.
struct PlanView {
  PlanView(const cost::Problem& problem, const compiler::Plan& plan);

  const cost::Problem& problem;
  const graph::ModelGraph& graph;
  const graph::SplitAnalysis& splits;
  const compiler::Plan& plan;
  IdVector<BufferId, TaskId> maker;  // which allocates it
  // Frozen parameters that are gathered before they are read: a device keeps its rows alone.
  IdVector<TensorId, std::uint8_t> lies_in_rows;
  Csr<TaskId, TaskId> predecessors;

  // The tensors of a collective that several share hold one buffer per device together.
  bool shares_buffer(TaskId task) const {
    return plan.payload[task].valid() && plan.carried_by(task).size() > 1;
  }
  double share(TaskId task) const {
    return static_cast<double>(plan.end[task] - plan.begin[task]) / static_cast<double>(plan.batch);
  }
  bool is_mean(TensorId tensor) const {
    return splits.rules[tensor].kind == graph::SplitKind::kMean;
  }
};

// The slots of one device; made as they are asked for.
class SlotTable {
 public:
  SlotTable(const PlanView& view, Program& program) : view_(view), program_(program) {}
  SlotId outside(TensorId tensor);  // a resident or an input
  // `content`: which of the tensors in a shared buffer.
  SlotId buffer(BufferId buffer, TensorId content);
  // All slots of a buffer that were asked for.
  const std::map<TensorId, SlotId>& of_buffer(BufferId buffer) { return buffers_[buffer]; }

 private:
  const PlanView& view_;
  Program& program_;
  std::map<BufferId, std::map<TensorId, SlotId>> buffers_;
};

// Steps of one task on one device. Values are made when they are asked for, each once: loaded from
// what the task reads, cut to its samples, seen through views.
class BodyBuilder {
 public:
  BodyBuilder(const PlanView& view, SlotTable& slots, Program& program, Instruction& instruction);

  Register value(TensorId tensor, graph::OperandUse use);
  Register cut(Register value, TensorId tensor, std::int64_t held_begin, std::int64_t held_end,
               std::int64_t begin, std::int64_t end);
  Register scale(Register value, double factor);
  Register load(SlotId slot);
  Register load(BufferId buffer, TensorId content) { return load(slots_.buffer(buffer, content)); }
  void store(Register value, SlotId slot);
  // Rows [begin, end) along axis 0 of a value, and their place in what stays.
  Register rows(Register value, std::int64_t begin, std::int64_t end);
  void store_rows(Register value, SlotId slot, std::int64_t begin, std::int64_t end);
  // Ops that are called from now on are of an update by rows, of which so many are this device's.
  void set_rows(std::int64_t rows) { rows_ = rows; }
  // From now on `tensor` is this register.
  void set_value(TensorId tensor, Register value) {
    known_[{tensor, false}] = known_[{tensor, true}] = value;
  }
  void capture(Register value, const Capture& capture);
  Register add(std::vector<Register> addends, bool in_place);
  Register join(std::vector<Register> parts, TensorId tensor);
  // Samples [at, at) of `tensor`: a value without any.
  Register no_samples(TensorId tensor, std::int64_t at);
  // A value of zeros, of the task's samples.
  Register zeros(TensorId tensor);

  // Runs a view and returns what it makes of `tensor`, one of its outputs.
  Register call_view(BodyStep step, TensorId tensor);
  // Runs an op and keeps what it makes in this body. On a slice without samples, what is made of
  // samples has none and what is added up adds nothing, and no operator is asked; what is the same
  // on all slices is computed as on any.
  void call(OpId op);
  // Runs ops that do the same in chains of one form, as one call of a kernel that takes lists.
  void call_lists(const std::vector<OpId>& ops);
  // The same for ops whose results are the same too: the first one's are those of all.
  void call_once(const std::vector<OpId>& ops);
  // The results of the last calls, to where the plan keeps them.
  void store_outputs(OpId op, TaskId task);

  // A buffer that the task reads and that holds `content`.
  struct Holder {
    BufferId buffer;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool partial = false;  // as its producer left it
  };
  std::vector<Holder> holders(TensorId content) const;

  // Says after which step each register is last read, and what may be overwritten then.
  void finish();

 private:
  bool is_empty_slice_of(OpId op) const;
  void make_nothing(OpId op);
  void note_last_reads();
  void note_overwritable(std::size_t call);
  bool replaces_operands(const BodyStep& step) const;
  void note_replaced(std::size_t call);
  Register add_step(BodyStep step);
  bool samples_of(TensorId tensor) const;
  const Holder* choose(const std::vector<Holder>& found, TensorId tensor,
                       graph::OperandUse use) const;

  const PlanView& view_;
  SlotTable& slots_;
  Program& program_;
  Instruction& instruction_;
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t rows_ = 0;
  std::map<TensorId, Register> made_;                    // by the calls of this body
  std::map<std::pair<TensorId, bool>, Register> known_;  // with: as a partial sum
  std::map<SlotId, Register> loaded_;
};

}  // namespace heterog::runtime

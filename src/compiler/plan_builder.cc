// Rows are closed as tasks follow one another; successors are the predecessors turned around.
#include "compiler/plan_builder.h"

#include <utility>

namespace heterog::compiler {

PlanBuilder::PlanBuilder(std::size_t devices, std::size_t links, Plan recycled)
    : plan_(std::move(recycled)) {
  Plan& p = plan_;
  const auto clear = [](auto&... members) { (members.clear(), ...); };
  clear(p.kind, p.op, p.tensor, p.device, p.peer, p.begin, p.end, p.duration, p.moved_bytes,
        p.payload, p.workspace, p.predecessors, p.holds, p.participants, p.carried, p.contributions,
        p.buffers, p.allocates, p.reads, p.readers);
  p.device_count = devices;
  p.link_count = links;
  predecessors_.reserve(p.successors.rows(), p.successors.size());
}

void PlanBuilder::end_task() {
  if (!is_open_) return;
  is_open_ = false;
  plan_.holds.end_row();
  plan_.participants.end_row();
  plan_.allocates.end_row();
  plan_.reads.end_row();
  predecessors_.end_row();
  if (plan_.payload.back().valid()) {
    plan_.carried.end_row();
    plan_.contributions.end_row();
  }
}

TaskId PlanBuilder::add_task(const Task& task) {
  end_task();
  is_open_ = true;
  plan_.op.push_back(task.op);
  plan_.tensor.push_back(task.tensor);
  plan_.device.push_back(task.device);
  plan_.peer.push_back(task.peer);
  plan_.begin.push_back(task.begin);
  plan_.end.push_back(task.end);
  plan_.duration.push_back(task.duration);
  plan_.moved_bytes.push_back(task.moved_bytes);
  plan_.payload.push_back(PayloadId());
  plan_.workspace.push_back(task.workspace);
  return plan_.kind.push_back(task.kind);
}

void PlanBuilder::carry(TaskId task, const Carried& carried) {
  EXPECT(is_latest(task) && has_payload(plan_.kind[task]));
  if (!plan_.payload[task].valid()) plan_.payload[task] = PayloadId(plan_.carried.rows());
  plan_.carried.push(carried);
}

BufferId PlanBuilder::allocate([[maybe_unused]] TaskId task, DeviceId device, Bytes bytes,
                               TensorId tensor) {
  EXPECT(is_latest(task));
  const BufferId buffer = plan_.buffers.push_back({device, bytes, tensor});
  plan_.readers.push_back(0);
  plan_.allocates.push(buffer);
  return buffer;
}

void PlanBuilder::read([[maybe_unused]] TaskId task, BufferId buffer) {
  EXPECT(is_latest(task));
  if (!buffer.valid()) return;
  plan_.reads.push(buffer);
  ++plan_.readers[buffer];
}

// Payloads stand in the order of their tasks: those of a range of tasks follow one another.
template <class Rename>
void PlanBuilder::append_payloads(const Plan& plan, const Range& range, Rename rename) {
  std::size_t first = 0, last = 0;
  for (std::size_t i = range.first; i < range.last; ++i) {
    const PayloadId old = plan.payload[TaskId(i)];
    if (!old.valid()) {
      plan_.payload.push_back(PayloadId());
      continue;
    }
    if (first == last) first = old.value();
    last = old.value() + 1;
    plan_.payload.push_back(PayloadId(plan_.carried.rows() + old.value() - first));
  }
  if (first == last) return;
  plan_.carried.append_rows(plan.carried, first, last, [](const Carried& one) { return one; });
  plan_.contributions.append_rows(plan.contributions, first, last, [&](Contribution one) {
    if (one.buffer.valid()) one.buffer = rename(one.buffer);
    return one;
  });
}

void PlanBuilder::append(const Plan& plan, const Csr<TaskId, TaskId>& predecessors,
                         const Range& range, const Names& names) {
  if (range.first == range.last) return;
  end_task();
  const auto copy = [](auto& to, const auto& from, std::size_t first, std::size_t last) {
    const auto begin = from.raw().begin();
    to.raw().insert(to.raw().end(), begin + static_cast<std::ptrdiff_t>(first),
                    begin + static_cast<std::ptrdiff_t>(last));
  };
  const auto copy_tasks = [&](auto& to, const auto& from) {
    copy(to, from, range.first, range.last);
  };
  copy_tasks(plan_.kind, plan.kind);
  copy_tasks(plan_.op, plan.op);
  copy_tasks(plan_.tensor, plan.tensor);
  copy_tasks(plan_.device, plan.device);
  copy_tasks(plan_.peer, plan.peer);
  copy_tasks(plan_.begin, plan.begin);
  copy_tasks(plan_.end, plan.end);
  copy_tasks(plan_.duration, plan.duration);
  copy_tasks(plan_.moved_bytes, plan.moved_bytes);
  copy_tasks(plan_.workspace, plan.workspace);
  copy(plan_.buffers, plan.buffers, range.first_buffer, range.last_buffer);
  plan_.readers.resize(plan_.buffers.size());

  const auto same = [](const auto& value) { return value; };
  const auto rename = [&](BufferId buffer) { return BufferId(names.buffer[buffer.value()]); };
  append_payloads(plan, range, rename);
  plan_.holds.append_rows(plan.holds, range.first, range.last, same);
  plan_.participants.append_rows(plan.participants, range.first, range.last, same);
  plan_.allocates.append_rows(plan.allocates, range.first, range.last, rename);
  plan_.reads.append_rows(plan.reads, range.first, range.last, [&](BufferId buffer) {
    ++plan_.readers[rename(buffer)];
    return rename(buffer);
  });
  predecessors_.append_rows(predecessors, range.first, range.last,
                            [&](TaskId task) { return TaskId(names.task[task.value()]); });
  // The last task may still be added to, as after add_task.
  is_open_ = true;
  if (plan_.payload.back().valid()) {
    plan_.carried.reopen_row();
    plan_.contributions.reopen_row();
  }
  plan_.holds.reopen_row();
  plan_.participants.reopen_row();
  plan_.allocates.reopen_row();
  plan_.reads.reopen_row();
  predecessors_.reopen_row();
}

Plan PlanBuilder::finish() && {
  end_task();
  predecessors_.sort_and_unique_rows();
  plan_.predecessors.reserve(plan_.task_count());
  for (TaskId task : plan_.task_ids()) {
    plan_.predecessors.push_back(static_cast<std::uint32_t>(predecessors_[task].size()));
  }
  plan_.successors.assign_transposed(predecessors_, plan_.task_count());
  return std::move(plan_);
}

}  // namespace heterog::compiler

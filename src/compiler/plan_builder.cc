// Rows are closed as tasks follow one another; successors are the predecessors turned around.
#include "compiler/plan_builder.h"

#include <utility>

namespace heterog::compiler {

PlanBuilder::PlanBuilder(std::size_t devices, std::size_t links, Plan recycled)
    : plan_(std::move(recycled)) {
  Plan& p = plan_;
  const auto clear = [](auto&... members) { (members.clear(), ...); };
  clear(p.kind, p.op, p.tensor, p.device, p.peer, p.begin, p.end, p.duration, p.moved_bytes,
        p.payload, p.workspace, p.predecessors, p.holds, p.participants, p.updated, p.carried,
        p.contributions, p.buffers, p.allocates, p.reads, p.readers);
  p.device_count = devices;
  p.link_count = links;
  predecessors_.reserve(p.successors.rows(), p.successors.size());
}

void PlanBuilder::end_task() {
  if (!is_open_) return;
  is_open_ = false;
  plan_.holds.end_row();
  plan_.participants.end_row();
  plan_.updated.end_row();
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

void PlanBuilder::allocate_scratch(TaskId task, DeviceId device, Bytes bytes, TensorId tensor) {
  plan_.buffers[allocate(task, device, bytes, tensor)].is_scratch = true;
}

void PlanBuilder::read([[maybe_unused]] TaskId task, BufferId buffer) {
  EXPECT(is_latest(task));
  if (!buffer.valid()) return;
  plan_.reads.push(buffer);
  ++plan_.readers[buffer];
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

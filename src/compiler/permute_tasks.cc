// Member by member.
#include "compiler/permute_tasks.h"

#include <utility>

namespace heterog::compiler {
namespace {

template <class T>
void permute_values(const std::vector<std::uint32_t>& order, const T& of_new,
                    IdVector<TaskId, T>& values) {
  IdVector<TaskId, T> made;
  made.reserve(order.size());
  for (std::uint32_t task : order) {
    made.push_back(task < values.size() ? values[TaskId(task)] : of_new);
  }
  values = std::move(made);
}

}  // namespace

void permute_tasks(Plan& plan, const std::vector<std::uint32_t>& order) {
  permute_values(order, TaskKind::kTurn, plan.kind);
  permute_values(order, OpId(), plan.op);
  permute_values(order, TensorId(), plan.tensor);
  permute_values(order, DeviceId(), plan.device);
  permute_values(order, DeviceId(), plan.peer);
  permute_values(order, std::int64_t{0}, plan.begin);
  permute_values(order, std::int64_t{0}, plan.end);
  permute_values(order, Nanoseconds{0}, plan.duration);
  permute_values(order, Bytes{0}, plan.moved_bytes);
  permute_values(order, PayloadId(), plan.payload);
  permute_values(order, Bytes{0}, plan.workspace);
  plan.participants = permuted(plan.participants, order);
  plan.updated = permuted(plan.updated, order);
  plan.allocates = permuted(plan.allocates, order);
  plan.reads = permuted(plan.reads, order);
}

}  // namespace heterog::compiler

// Checks a compiled plan against its own rules.
#include "compiler/compile.h"

namespace heterog::compiler {
namespace {

void verify_edges(const Plan& plan) {
  IdVector<TaskId, std::uint32_t> seen(plan.task_count(), 0);
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      ENSURE(next > task);  // ids are a topological order, so there is no cycle
      ++seen[next];
    }
  }
  ENSURE(seen == plan.predecessors);
}

void verify_tasks(const Plan& plan) {
  for (TaskId task : plan.task_ids()) {
    ENSURE(plan.duration[task] >= 0);
    ENSURE(plan.device[task].value() < plan.device_count);
    ENSURE(plan.begin[task] < plan.end[task] && plan.end[task] <= plan.batch);
    ENSURE(!plan.holds[task].empty());
    for (const Hold& hold : plan.holds[task]) {
      ENSURE(hold.resource.value() < plan.resource_count());
      ENSURE(hold.duration >= 0 && hold.duration <= plan.duration[task]);
    }
    ENSURE((plan.kind[task] == TaskKind::kAllReduce) == (plan.participants[task].size() > 1));
    for (TaskId next : plan.successors[task]) {
      ENSURE(plan.rank[task] >= plan.duration[task] + plan.rank[next]);
      ENSURE(plan.order[task] < plan.order[next] || plan.rank[task] == plan.rank[next]);
    }
  }
}

// A buffer is made by one task, and read only after it.
void verify_buffers(const Plan& plan) {
  IdVector<BufferId, TaskId> maker(plan.buffers.size());
  IdVector<BufferId, std::uint32_t> readers(plan.buffers.size(), 0);
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.allocates[task]) {
      ENSURE(!maker[buffer].valid());
      maker[buffer] = task;
      ENSURE(plan.buffers[buffer].bytes >= 0);
    }
    for (BufferId buffer : plan.reads[task]) {
      ENSURE(maker[buffer].valid() && maker[buffer] < task);
      ++readers[buffer];
    }
  }
  for (TaskId task : maker) ENSURE(task.valid());
  ENSURE(readers == plan.readers);
}

}  // namespace

void verify_plan(const Plan& plan) {
  verify_edges(plan);
  verify_tasks(plan);
  verify_buffers(plan);
}

}  // namespace heterog::compiler

// Checks a compiled plan against its own rules.
#include "compiler/check/verify_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

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

// Who gives is who takes part, and what is given lies where the task can read it.
void verify_payload(const Plan& plan, TaskId task, EmptySlices empty) {
  const TaskKind kind = plan.kind[task];
  ENSURE(plan.payload[task].valid() == has_payload(kind));
  if (!has_payload(kind)) return;
  const auto carried = plan.carried_by(task);
  const auto given = plan.contributions_to(task);
  ENSURE(!carried.empty() && carried.front().tensor == plan.tensor[task]);
  ENSURE(carried.size() == 1 || is_collective(kind));
  ENSURE(!given.empty());
  for (const Carried& one : carried) {
    ENSURE(!one.compression.any() || is_communication(kind));
    ENSURE(one.compression.rank == 0 || kind == TaskKind::kAllReduce);
  }
  for (BufferId buffer : plan.allocates[task]) {
    ENSURE(!plan.buffers[buffer].is_scratch || plan.is_compressed(task));
  }
  const auto reads = plan.reads[task];
  for (const Contribution& one : given) {
    ENSURE(one.begin <= one.end && one.weight >= 0);
    ENSURE(one.weight > 0 || empty == EmptySlices::kAllowed);
    ENSURE(!one.buffer.valid() || std::find(reads.begin(), reads.end(), one.buffer) != reads.end());
  }
  if (is_collective(kind)) {
    const auto members = plan.participants[task];
    ENSURE(
        std::equal(given.begin(), given.end(), members.begin(), members.end(),
                   [](const Contribution& one, DeviceId member) { return one.device == member; }));
    ENSURE(std::is_sorted(members.begin(), members.end(), std::less_equal<>()));  // no two alike
  } else if (is_transfer(kind)) {
    ENSURE(given.size() == 1 && given.front().device == plan.peer[task]);
  } else if (kind == TaskKind::kAccumulate) {
    for (const Contribution& one : given) ENSURE(one.device == plan.device[task]);
  } else if (kind == TaskKind::kMerge) {
    std::int64_t at = plan.begin[task];
    for (const Contribution& one : given) {
      ENSURE(one.begin == at);
      at = one.end;
    }
    ENSURE(at == plan.end[task]);
  }
  if (kind == TaskKind::kReduceScatter || kind == TaskKind::kAllGather) {
    if (plan.encoding_of(task) == Encoding::kRows) return;
    std::int64_t at = 0;  // the intervals are the whole, side by side
    for (const Contribution& one : given) {
      ENSURE(one.begin == at);
      at = one.end;
    }
  }
}

// Of a transfer that kernels move its two ends; else nothing takes part in what is no collective.
bool is_ends_or_none(const Plan& plan, TaskId task) {
  const auto members = plan.participants[task];
  if (members.empty()) return true;
  const auto [first, second] = std::minmax(plan.device[task], plan.peer[task]);
  return is_transfer(plan.kind[task]) && members.size() == 2 && members[0] == first &&
         members[1] == second && plan.drag_of(task, first) > 0 && plan.drag_of(task, second) > 0;
}

void verify_tasks(const Plan& plan, EmptySlices empty) {
  for (TaskId task : plan.task_ids()) {
    ENSURE(plan.duration[task] >= 0);
    ENSURE(plan.device[task].value() < plan.device_count);
    ENSURE(0 <= plan.begin[task] && plan.begin[task] <= plan.end[task]);
    ENSURE(plan.end[task] <= plan.batch);
    ENSURE(plan.begin[task] < plan.end[task] || empty == EmptySlices::kAllowed);
    ENSURE(!plan.holds[task].empty());
    for (const Hold& hold : plan.holds[task]) {
      ENSURE(hold.resource.value() < plan.resource_count());
      ENSURE(hold.duration >= 0 && hold.duration <= plan.duration[task]);
    }
    const auto members = plan.participants[task];
    ENSURE(is_collective(plan.kind[task]) ? members.size() > 1 : is_ends_or_none(plan, task));
    for (TaskId next : plan.successors[task]) {
      ENSURE(plan.rank[task] >= plan.duration[task] + plan.rank[next]);
    }
    verify_payload(plan, task, empty);
    const auto updated = plan.updated[task];
    ENSURE(updated.empty() == (plan.kind[task] != TaskKind::kUpdate));
    ENSURE(updated.empty() || updated.front() == plan.tensor[task]);
  }
}

// A frozen parameter's rows become a whole on each of its owners, in a buffer there.
void verify_whole(const Plan& plan, TaskId gather) {
  for (DeviceId device : plan.participants[gather]) {
    ENSURE(std::ranges::any_of(plan.allocates[gather], [&](BufferId buffer) {
      return plan.buffers[buffer].device == device && !plan.buffers[buffer].is_scratch;
    }));
  }
}

// The rows of a tensor's owners follow one another from row 0 on. Each trained parameter that is
// dealt by rows is updated by its owners alone, and then gathered by all of them, or pulled from
// them: who pulls some rows gets all that are not his own. A frozen one is gathered alone.
void verify_rows(const Plan& plan) {
  if (plan.rows.rows() == 0) return;
  for (std::size_t i = 0; i < plan.rows.rows(); ++i) {
    std::int64_t at = 0;
    for (const OwnedRows& own : plan.rows[TensorId(i)]) {
      ENSURE(own.begin == at && own.begin <= own.end);
      at = own.end;
    }
  }
  std::set<TensorId> gathered, updated, frozen;
  std::map<std::pair<TensorId, DeviceId>, std::int64_t> pulled;
  for (TaskId task : plan.task_ids()) {
    const bool gathers = plan.kind[task] == TaskKind::kAllGather;
    for (TensorId parameter : plan.updated[task]) {
      const auto rows = plan.rows_of(parameter);
      if (rows.empty()) continue;
      const auto own = std::ranges::find(rows, plan.device[task], &OwnedRows::device);
      ENSURE(own != rows.end() && own->count() > 0);
      updated.insert(parameter);
    }
    for (std::size_t i = 0; gathers && i < plan.carried_by(task).size(); ++i) {
      const TensorId tensor = plan.carried_by(task)[i].tensor;
      const auto rows = plan.rows_of(tensor);
      if (rows.empty()) continue;
      ENSURE(std::ranges::equal(rows, plan.participants[task], {}, &OwnedRows::device));
      (plan.encoding_of(task) == Encoding::kPart ? frozen : gathered).insert(tensor);
    }
    if (gathers && plan.encoding_of(task) == Encoding::kPart) verify_whole(plan, task);
    if (plan.kind[task] == TaskKind::kPull && plan.encoding_of(task) == Encoding::kPart) {
      const Contribution& given = plan.contributions_to(task).front();
      gathered.insert(plan.tensor[task]);
      pulled[{plan.tensor[task], plan.device[task]}] += given.end - given.begin;
    }
  }
  for (const auto& [at, count] : pulled) {
    const auto rows = plan.rows_of(at.first);
    const auto own = std::ranges::find(rows, at.second, &OwnedRows::device);
    ENSURE(!rows.empty() && own != rows.end());
    ENSURE(count + own->count() == rows.back().end);
  }
  ENSURE(gathered == updated);
  for (TensorId tensor : frozen) ENSURE(!updated.contains(tensor));
}

// No two tasks are equally urgent.
void verify_priorities(const Plan& plan) {
  IdVector<TaskId, std::uint8_t> seen(plan.task_count(), 0);
  for (TaskId task : plan.task_ids()) {
    ENSURE(plan.priority[task] < plan.task_count());
    ENSURE(!std::exchange(seen[TaskId(plan.priority[task])], 1));
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

// The buffers of others in which a sum or an all-reduce leaves its result.
std::span<const BufferId> overwritten(const Plan& plan, TaskId task) {
  const auto is_result = [&](BufferId buffer) { return !plan.buffers[buffer].is_scratch; };
  if (std::ranges::any_of(plan.allocates[task], is_result)) return {};
  switch (plan.kind[task]) {
    case TaskKind::kAllReduce:
      return plan.reads[task];
    case TaskKind::kSum:
    case TaskKind::kAccumulate:
      return std::span(&plan.contributions_to(task).front().buffer, 1);
    default:
      return {};
  }
}

bool is_before(const Plan& plan, TaskId first, TaskId second) {
  std::vector<TaskId> open{first};
  std::set<TaskId> seen;
  while (!open.empty()) {
    const TaskId task = open.back();
    open.pop_back();
    for (TaskId next : plan.successors[task]) {
      if (next == second) return true;
      if (next < second && seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

// Whoever else reads what is overwritten does so before, or after: never meanwhile.
void verify_overwrites(const Plan& plan) {
  IdVector<BufferId, TaskId> by(plan.buffers.size());
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : overwritten(plan, task)) {
      if (buffer.valid()) by[buffer] = task;
    }
  }
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.reads[task]) {
      const TaskId sum = by[buffer];
      if (!sum.valid() || sum == task) continue;
      ENSURE(sum < task ? is_before(plan, sum, task) : is_before(plan, task, sum));
    }
  }
}

}  // namespace

void verify_plan(const Plan& plan, EmptySlices empty) {
  verify_edges(plan);
  verify_tasks(plan, empty);
  verify_priorities(plan);
  verify_buffers(plan);
  verify_overwrites(plan);
  verify_rows(plan);
}

}  // namespace heterog::compiler

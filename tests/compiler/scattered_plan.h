// A plan with the kinds of tasks that no planner asks for yet: every all-reduce of one tensor made
// a reduce-scatter and an all-gather of uneven parts.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"
#include "compiler/check/verify_plan.h"
#include "compiler/compile.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "cost/collective.h"

namespace heterog::compiler {

class PlanScatterer {
 public:
  PlanScatterer(const cost::Problem& problem, const Plan& plan, std::uint64_t seed)
      : problem_(problem),
        plan_(plan),
        rng_(seed),
        builder_(plan.device_count, plan.link_count),
        before_(plan.task_count()) {
    for (TaskId task : plan.task_ids()) {
      for (TaskId next : plan.successors[task]) before_[next].push_back(task);
    }
  }

  Plan run() && {
    for (TaskId task : plan_.task_ids()) {
      if (can_scatter(task)) {
        scatter(task);
      } else {
        copy(task);
      }
    }
    Plan result = std::move(builder_).finish();
    result.batch = plan_.batch;
    result.static_memory = plan_.static_memory;
    result.capacity = plan_.capacity;
    set_ranks(result);
    verify_plan(result);
    return result;
  }

 private:
  bool can_scatter(TaskId task) const {
    return plan_.kind[task] == TaskKind::kAllReduce && plan_.carried_by(task).size() == 1 &&
           !problem_.graph->shape(plan_.tensor[task]).empty() &&
           !problem_.graph->tensor(plan_.tensor[task]).replaces.valid();
  }

  PlanBuilder::Task task_of(TaskId task) const {
    return {.kind = plan_.kind[task],
            .op = plan_.op[task],
            .tensor = plan_.tensor[task],
            .device = plan_.device[task],
            .peer = plan_.peer[task],
            .begin = plan_.begin[task],
            .end = plan_.end[task],
            .duration = plan_.duration[task],
            .moved_bytes = plan_.moved_bytes[task],
            .workspace = plan_.workspace[task]};
  }

  void copy(TaskId task) {
    const PlanBuilder::Task made = task_of(task);
    const TaskId id = builder_.add_task(made);
    task_[task] = id;
    for (const Hold& hold : plan_.holds[task]) builder_.hold(id, hold);
    for (DeviceId device : plan_.participants[task]) builder_.participate(id, device);
    for (TensorId parameter : plan_.updated[task]) builder_.update(id, parameter);
    for (TaskId earlier : before_[task]) builder_.depend(task_.at(earlier), id);
    for (BufferId buffer : plan_.reads[task]) builder_.read(id, buffer_.at(buffer));
    for (BufferId buffer : plan_.allocates[task]) {
      const Plan::Buffer& info = plan_.buffers[buffer];
      buffer_[buffer] = builder_.allocate(id, info.device, info.bytes, info.tensor);
    }
    if (!has_payload(made.kind)) return;
    for (const Carried& carried : plan_.carried_by(task)) builder_.carry(id, carried);
    for (Contribution one : plan_.contributions_to(task)) {
      if (one.buffer.valid()) one.buffer = buffer_.at(one.buffer);
      builder_.contribute(id, one);
    }
  }

  TaskId collective(TaskId task, TaskKind kind, const std::vector<std::int64_t>& cuts) {
    const auto members = plan_.participants[task];
    const auto cost = cost::collective_cost(cost::all_gather_shape(*problem_.cluster, members),
                                            plan_.moved_bytes[task]);
    PlanBuilder::Task made = task_of(task);
    made.kind = kind;
    made.duration = cost.duration;
    const TaskId id = builder_.add_task(made);
    for (DeviceId device : members) {
      builder_.hold(id, {builder_.plan().collective_channel(device), cost.duration});
      builder_.participate(id, device);
    }
    for (const auto& [link, held] : cost.links)
      builder_.hold(id, {builder_.plan().link(link), held});
    Carried carried = plan_.carried_by(task).front();
    if (kind == TaskKind::kAllGather) carried.weighted = false;
    builder_.carry(id, carried);
    for (std::size_t i = 0; i < members.size(); ++i) {
      builder_.contribute(id, {.device = members[i],
                               .begin = cuts[i],
                               .end = cuts[i + 1],
                               .weight = plan_.contributions_to(task)[i].weight});
    }
    return id;
  }

  void scatter(TaskId task) {
    const TensorId tensor = plan_.tensor[task];
    const auto members = plan_.participants[task];
    const std::int64_t rows = problem_.graph->shape(tensor)[0].at(plan_.batch);
    const Bytes bytes = problem_.graph->bytes(tensor, plan_.batch);
    std::vector<std::int64_t> cuts = {0, rows};
    for (std::size_t i = 1; i < members.size(); ++i) {
      cuts.push_back(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(rows) + 1)));
    }
    std::sort(cuts.begin(), cuts.end());

    const TaskId scatters = collective(task, TaskKind::kReduceScatter, cuts);
    for (TaskId earlier : before_[task]) builder_.depend(task_.at(earlier), scatters);
    for (BufferId buffer : plan_.reads[task]) builder_.read(scatters, buffer_.at(buffer));
    std::vector<BufferId> parts;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Bytes part = rows == 0 ? 0 : bytes / rows * (cuts[i + 1] - cuts[i]);
      parts.push_back(builder_.allocate(scatters, members[i], part, tensor));
    }
    const TaskId gathers = collective(task, TaskKind::kAllGather, cuts);
    task_[task] = gathers;
    builder_.depend(scatters, gathers);
    std::map<DeviceId, BufferId> whole;
    for (std::size_t i = 0; i < members.size(); ++i) {
      builder_.read(gathers, parts[i]);
      whole[members[i]] = builder_.allocate(gathers, members[i], bytes, tensor);
    }
    // From here on, who would have read the reduced value reads this.
    const auto result = plan_.allocates[task].empty() ? plan_.reads[task] : plan_.allocates[task];
    for (BufferId buffer : result) buffer_[buffer] = whole.at(plan_.buffers[buffer].device);
  }

  const cost::Problem& problem_;
  const Plan& plan_;
  Rng rng_;
  PlanBuilder builder_;
  IdVector<TaskId, std::vector<TaskId>> before_;
  std::map<TaskId, TaskId> task_;        // old to new
  std::map<BufferId, BufferId> buffer_;  // old to new, as of the task that is being copied
};

inline Plan scattered(const cost::Problem& problem, const Plan& plan, std::uint64_t seed) {
  return PlanScatterer(problem, plan, seed).run();
}

inline std::size_t count_kind(const Plan& plan, TaskKind kind) {
  return static_cast<std::size_t>(std::count(plan.kind.begin(), plan.kind.end(), kind));
}

}  // namespace heterog::compiler

// From tasks to flows.
#include "measure/run_links.h"

#include "cost/link_profile_io.h"
#include "measure/drift.h"

namespace heterog::measure {

using compiler::TaskKind;

std::vector<cost::MeasuredFlow> measured_flows(const compiler::Plan& plan,
                                               const std::vector<runtime::MeasuredStep>& steps) {
  using Kind = cost::MeasuredFlow::Kind;
  const IdVector<TaskId, Nanoseconds> measured = typical_durations(steps);
  std::vector<cost::MeasuredFlow> flows;
  for (TaskId task : plan.task_ids()) {
    const TaskKind kind = plan.kind[task];
    if (!is_communication(kind) || measured[task] <= 0 || plan.moved_bytes[task] <= 0) continue;
    if (plan.is_compressed(task)) continue;  // some of its time is no link's
    cost::MeasuredFlow flow{.bytes = plan.moved_bytes[task], .seconds = to_seconds(measured[task])};
    if (is_transfer(kind)) {
      flow.kind = kind == TaskKind::kTransfer ? Kind::kTransfer : Kind::kServerTransfer;
      flow.devices = {plan.peer[task], plan.device[task]};
    } else {
      flow.kind = kind == TaskKind::kAllReduce ? Kind::kAllReduce : Kind::kGather;
      flow.devices.assign(plan.participants[task].begin(), plan.participants[task].end());
    }
    flows.push_back(std::move(flow));
  }
  return flows;
}

void write_links(const std::string& path, const cluster::Cluster& cluster,
                 const compiler::Plan& plan, const std::vector<runtime::MeasuredStep>& steps) {
  const std::vector<cost::MeasuredFlow> flows = measured_flows(plan, steps);
  if (flows.empty()) return;
  cost::write_link_profile(path, cluster, cost::fit_links(cluster, flows), flows.size());
}

}  // namespace heterog::measure

// Names tasks, resources and groups by the operators, devices and links that they concern.
#include "explain/names.h"

#include <fmt/format.h>

namespace heterog::explain {

std::string task_name(const cost::Problem& problem, const compiler::Plan& plan, TaskId task) {
  std::string name(compiler::task_kind_name(plan.kind[task]));
  if (plan.op[task].valid()) name += " " + problem.graph->op(plan.op[task]).name;
  return name;
}

std::string task_phase(const cost::Problem& problem, const compiler::Plan& plan, TaskId task) {
  if (plan.kind[task] != compiler::TaskKind::kCompute) {
    return std::string(compiler::task_kind_name(plan.kind[task]));
  }
  return std::string(graph::phase_name(problem.graph->op(plan.op[task]).phase));
}

std::string resource_name(const cost::Problem& problem, const compiler::Plan& plan,
                          ResourceId resource) {
  const std::size_t number = resource.value(), devices = plan.device_count;
  if (number < devices) return problem.cluster->device(DeviceId(number)).name;
  if (number < 2 * devices) {
    return problem.cluster->device(DeviceId(number - devices)).name + "'s collectives";
  }
  if (resource == plan.all_collectives()) return "the serial collectives";
  return problem.cluster->link(LinkId(number - 2 * devices)).name;
}

// The common beginning of the scopes of its forward ops, in whole words; if they share none, the op
// that takes longest.
std::string group_name(const cost::Problem& problem, GroupId group) {
  const graph::ModelGraph& graph = *problem.graph;
  std::string common;
  bool first = true;
  OpId heaviest;
  for (OpId op : problem.grouping.members[group]) {
    if (graph.op(op).alias) continue;
    if (!heaviest.valid() ||
        problem.costs.mean_seconds(op) > problem.costs.mean_seconds(heaviest)) {
      heaviest = op;
    }
    if (graph.op(op).phase != graph::Phase::kForward) continue;
    const std::string scope(graph.scope(op));
    if (first) common = scope;
    first = false;
    while (!common.empty() && scope != common && !scope.starts_with(common + ".")) {
      const std::size_t dot = common.rfind('.');
      common.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  if (common.empty() && heaviest.valid()) common = graph.op(heaviest).name;
  return fmt::format("#{} {}", group.value(), common);
}

}  // namespace heterog::explain

// Tasks by what they do to what, and where.
#include "compiler/plan_text.h"

#include <fmt/format.h>

#include <iterator>

namespace heterog::compiler {
namespace {

std::string task_label(const Plan& plan, const cost::Problem& problem, TaskId task) {
  const graph::ModelGraph& graph = *problem.graph;
  const cluster::Cluster& cluster = *problem.cluster;
  const TaskKind kind = plan.kind[task];
  const std::string subject = task_subject(plan, graph, task);
  std::string place;
  if (is_collective(kind)) {
    for (DeviceId device : plan.participants[task]) {
      place += (place.empty() ? "" : "+") + cluster.device(device).name;
    }
  } else if (plan.peer[task].valid()) {
    place = cluster.device(plan.peer[task]).name + ">" + cluster.device(plan.device[task]).name;
  } else {
    place = cluster.device(plan.device[task]).name;
  }
  std::string form;
  for (const Carried& one :
       plan.payload[task].valid() ? plan.carried_by(task) : std::span<const Carried>()) {
    if (!one.compression.any()) continue;
    form = " " + cost::compression_text(one.compression);
    break;
  }
  return fmt::format("{} {}@{} [{},{}){}", task_kind_name(kind), subject, place, plan.begin[task],
                     plan.end[task], form);
}

Csr<TaskId, TaskId> predecessors(const Plan& plan) {
  std::vector<std::pair<TaskId, TaskId>> pairs;
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) pairs.emplace_back(next, task);
  }
  return Csr<TaskId, TaskId>::from_pairs(plan.task_count(), pairs);
}

}  // namespace

std::string task_subject(const Plan& plan, const graph::ModelGraph& graph, TaskId task) {
  if (!plan.tensor[task].valid()) return graph.op(plan.op[task]).name;
  const std::string& name = graph.tensor(plan.tensor[task]).name;
  const std::size_t updated = plan.updated[task].size();
  return updated > 1 ? fmt::format("{} and {} more", name, updated - 1) : name;
}

std::string plan_text(const Plan& plan, const cost::Problem& problem) {
  const auto before = predecessors(plan);
  std::string text;
  for (TaskId task : plan.task_ids()) {
    fmt::format_to(std::back_inserter(text), "t{} {} {:.3f} ms", task.value(),
                   task_label(plan, problem, task), static_cast<double>(plan.duration[task]) / 1e6);
    if (!before[task].empty()) text += " <-";
    for (TaskId p : before[task]) fmt::format_to(std::back_inserter(text), " t{}", p.value());
    text += '\n';
  }
  return text;
}

std::string plan_dot(const Plan& plan, const cost::Problem& problem) {
  std::string dot = "digraph plan {\n  node [shape=box, fontname=monospace];\n";
  for (TaskId task : plan.task_ids()) {
    fmt::format_to(std::back_inserter(dot), "  t{} [label=\"{}\"{}];\n", task.value(),
                   task_label(plan, problem, task),
                   is_communication(plan.kind[task]) ? ", style=rounded" : "");
  }
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) {
      fmt::format_to(std::back_inserter(dot), "  t{} -> t{};\n", task.value(), next.value());
    }
  }
  return dot + "}\n";
}

}  // namespace heterog::compiler

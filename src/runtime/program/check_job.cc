// Dispatch sequences, random operators, and next values that are read before their time.
#include "runtime/program/check_job.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "runtime/program/draws.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

void check_dispatch(const compiler::Plan& plan, std::span<const TaskId> dispatch,
                    const std::string& source) {
  VALIDATE(dispatch.size() == plan.task_count(),
           "{}: dispatch names {} tasks, the compiled plan has {}", source, dispatch.size(),
           plan.task_count());
  IdVector<TaskId, std::uint32_t> waits = plan.predecessors;
  IdVector<TaskId, std::uint8_t> seen(plan.task_count(), 0);
  for (TaskId task : dispatch) {
    VALIDATE(task.value() < plan.task_count() && !seen[task],
             "{}: dispatch: task {} is not one of the plan's {}, or occurs twice", source,
             task.value(), plan.task_count());
    VALIDATE(waits[task] == 0, "{}: dispatch: task {} comes before one that it waits for", source,
             task.value());
    seen[task] = 1;
    for (TaskId next : plan.successors[task]) --waits[next];
  }
}

namespace {

// Next values are written over the old ones. That an op reads an old one where it would be gone, in
// the order in which the compiler emits ops (update ops that several parameters share, then those
// of each parameter, come last), is refused.
void check_old_values(const cost::Problem& problem, const std::string& source) {
  const graph::ModelGraph& graph = *problem.graph;
  using Place = std::pair<std::size_t, std::size_t>;
  IdVector<OpId, Place> place(graph.op_count());
  for (OpId op : graph.op_ids()) {
    place[op] = {graph.op(op).phase == graph::Phase::kUpdate ? 1 : 0, op.value()};
  }
  for (std::size_t i = 0; i < problem.folded->chains.size(); ++i) {
    for (OpId op : problem.folded->chains[i].ops) place[op] = {2, i};
  }
  for (OpId op : graph.op_ids()) {
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (read.producer.valid()) continue;
      const OpId writer = problem.folded->updater[read.base];
      VALIDATE(
          !writer.valid() || place[op] <= place[writer],
          "{}: op '{}' reads the old value of '{}' after op '{}' has made the next one; read it "
          "earlier, or read a copy made earlier",
          source, graph.op(op).name, graph.tensor(read.base).name, graph.op(writer).name);
    }
  }
}

}  // namespace

void check_runnable(const cost::Problem& problem, const std::string& source) {
  const graph::ModelGraph& graph = *problem.graph;
  for (OpId op : graph.op_ids()) {
    const std::string_view type = graph.type_name(op);
    VALIDATE(!draws_from_generator(graph, op),
             "{}: op '{}' draws random numbers by {}, which gives other training under every plan "
             "and has no form that does not; take it out of the step",
             source, graph.op(op).name, type);
    if (is_drawn_by_counter(graph, op)) {
      const OpId drawn = drawn_for(graph, op);
      VALIDATE(drawn.valid() && graph.facts(drawn).random == operators::Random::kCounter &&
                   dropped_share(graph, drawn) == dropped_share(graph, op),
               "{}: op '{}' drops weights of an attention that its field forward does not name; "
               "expected the attention whose gradient it is, with the same dropout_p",
               source, graph.op(op).name);
    }
    for (TensorId out : graph.outputs(op)) {
      if (!out.valid()) continue;
      const graph::SplitKind kind = problem.splits->rules[out].kind;
      VALIDATE(!is_looked_at(graph, out) || kind != graph::SplitKind::kLocal,
               "{}: op '{}' makes the output '{}', of which each slice of the batch has one of its "
               "own; return a mean or a sum over the samples",
               source, graph.op(op).name, graph.tensor(out).name);
      if (!graph.tensor(out).replaces.valid()) continue;
      const bool partial = kind == graph::SplitKind::kMean || kind == graph::SplitKind::kSum;
      // Each slice has its own, and they are put together at the end of the step.
      VALIDATE(!partial || graph.consumers(out).empty(),
               "{}: op '{}' reads the new value of buffer '{}' in the step that makes it; read the "
               "old one",
               source, graph.op(graph.consumers(out).front()).name,
               graph.tensor(graph.tensor(out).replaces).name);
    }
    if (!graph.op(op).alias) continue;
    for (TensorId out : graph.outputs(op)) {
      VALIDATE(!out.valid() || !graph.tensor(out).replaces.valid(),
               "{}: op '{}' makes the next value of '{}' by a view; export a copy", source,
               graph.op(op).name, graph.tensor(graph.tensor(out).replaces).name);
    }
  }
  check_old_values(problem, source);
}

}  // namespace heterog::runtime

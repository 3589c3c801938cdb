// Finds gradients that replicas add up, and spoils one.
#include "runtime/program/faults.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace heterog::runtime {
namespace {

using compiler::TaskKind;

struct Contribution {
  TensorId base;               // what its producers leave in buffers
  std::vector<TaskId> makers;  // an instance each
};

// Gradients that replicas add up, each with the tasks that make its parts.
std::vector<Contribution> contributions(const Job& job, const compiler::Plan& plan) {
  const graph::ModelGraph& graph = *job.problem->graph;
  IdVector<OpId, std::vector<TaskId>> tasks(graph.op_count());
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute) tasks[plan.op[task]].push_back(task);
  }
  std::vector<Contribution> found;
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != graph::TensorRole::kGradient) continue;
    const TensorId base = graph.root(id);
    const OpId producer = graph.tensor(base).producer;
    if (!producer.valid() || tasks[producer].size() < 2) continue;
    if (job.problem->splits->rules[base].kind != graph::SplitKind::kSum) continue;
    found.push_back({base, tasks[producer]});
  }
  return found;
}

// Scales what a task stores of a tensor.
void scale_stored(Job& job, const compiler::Plan& plan, TaskId task, TensorId tensor,
                  double factor) {
  Program& program = job.programs[plan.device[task]];
  for (Instruction& instruction : program.instructions) {
    if (instruction.task != task) continue;
    for (std::size_t i = 0; i < instruction.body.size(); ++i) {
      BodyStep& store = instruction.body[i];
      if (store.kind != BodyStep::Kind::kStore || program.slots[store.slot].tensor != tensor) {
        continue;
      }
      BodyStep scale{.kind = BodyStep::Kind::kScale, .factor = factor, .in = store.in};
      scale.out = {instruction.registers++};
      store.in = scale.out;
      instruction.body.insert(instruction.body.begin() + static_cast<std::ptrdiff_t>(i), scale);
      return;
    }
  }
  ENSURE(false);
}

bool skip_first_pull(Job& job, const compiler::Plan& plan) {
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kPull) continue;
    for (Program& program : job.programs) {
      for (Instruction& instruction : program.instructions) {
        if (instruction.task == task) instruction.action = Action::kNone;
      }
    }
    return true;
  }
  return false;
}

bool weigh_equally(Job& job, const compiler::Plan& plan) {
  bool differs = false;
  for (const Contribution& gradient : contributions(job, plan)) {
    for (TaskId task : gradient.makers) {
      const double share =
          static_cast<double>(plan.end[task] - plan.begin[task]) / static_cast<double>(plan.batch);
      const double factor = 1 / (share * static_cast<double>(gradient.makers.size()));
      differs = differs || std::abs(factor - 1) > 0.01;
      scale_stored(job, plan, task, gradient.base, factor);
    }
  }
  return differs;
}

}  // namespace

void inject(Job& job, const compiler::Plan& plan, Fault fault) {
  switch (fault) {
    case Fault::kDropContribution: {
      const auto gradients = contributions(job, plan);
      VALIDATE(!gradients.empty(), "the plan has no gradient that replicas add up");
      return scale_stored(job, plan, gradients.front().makers.back(), gradients.front().base, 0);
    }
    case Fault::kEqualWeights:
      VALIDATE(weigh_equally(job, plan), "the plan has no unequal slices");
      return;
    case Fault::kSkipPull:
      VALIDATE(skip_first_pull(job, plan), "the plan has no parameter server to pull from");
      return;
  }
}

}  // namespace heterog::runtime

// Finds what a fault could strike, and spoils it.
#include "runtime/program/faults.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heterog::runtime {
namespace {

using compiler::TaskKind;

struct GradientPart {
  TensorId base;               // what its producers leave in buffers
  std::vector<TaskId> makers;  // an instance each
};

// Gradients that replicas add up, each with the tasks that make its parts.
std::vector<GradientPart> contributions(const Job& job, const compiler::Plan& plan) {
  const graph::ModelGraph& graph = *job.problem->graph;
  IdVector<OpId, std::vector<TaskId>> tasks(graph.op_count());
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute) tasks[plan.op[task]].push_back(task);
  }
  std::vector<GradientPart> found;
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != graph::TensorRole::kGradient) continue;
    const TensorId base = graph.root(id);
    const OpId producer = graph.tensor(base).producer;
    if (!producer.valid() || tasks[producer].size() < 2) continue;
    // Totals, on each device that updates with them.
    if (plan.end[tasks[producer][0]] - plan.begin[tasks[producer][0]] == plan.batch) continue;
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

// ---- sharded parameters ----

// It takes part, so that nobody waits for it, and what it gets goes nowhere.
bool skip_first_gather(Job& job, const compiler::Plan& plan) {
  for (Program& program : job.programs) {
    for (Instruction& instruction : program.instructions) {
      if (plan.kind[instruction.task] != TaskKind::kAllGather || !instruction.resident) continue;
      for (Register& value : instruction.values) {
        BodyStep copy{.kind = BodyStep::Kind::kScale, .in = {value}};
        copy.out = {value = instruction.registers++};
        instruction.body.push_back(copy);
      }
      return true;
    }
  }
  return false;
}

// The body of the first update by rows, and its first step of the kind.
std::optional<std::pair<std::vector<BodyStep>*, std::size_t>> first_row_step(
    Job& job, const compiler::Plan& plan, BodyStep::Kind kind) {
  for (Program& program : job.programs) {
    for (Instruction& instruction : program.instructions) {
      if (plan.kind[instruction.task] != TaskKind::kUpdate) continue;
      for (std::size_t i = 0; i < instruction.body.size(); ++i) {
        if (instruction.body[i].kind == kind) return std::pair(&instruction.body, i);
      }
    }
  }
  return std::nullopt;
}

bool keep_old_rows(Job& job, const compiler::Plan& plan) {
  const auto store = first_row_step(job, plan, BodyStep::Kind::kStoreRows);
  if (store) store->first->erase(store->first->begin() + static_cast<long>(store->second));
  return store.has_value();
}

// The first replica's rows are the first ones.
bool shift_rows(Job& job, const compiler::Plan& plan) {
  const auto step = first_row_step(job, plan, BodyStep::Kind::kRows);
  if (!step) return false;
  BodyStep& rows = step->first->at(step->second);
  const std::int64_t by = rows.begin > 0 ? -1 : 1;
  rows.begin += by;
  rows.end += by;
  return true;
}

bool give_zeros(Job& job) {
  for (Program& program : job.programs) {
    for (Instruction& instruction : program.instructions) {
      if (instruction.action != Action::kGatherParts) continue;
      for (Register& value : instruction.values) {
        BodyStep zero{.kind = BodyStep::Kind::kScale, .factor = 0, .in = {value}};
        zero.out = {value = instruction.registers++};
        instruction.body.push_back(zero);
      }
      return true;
    }
  }
  return false;
}

bool weigh_equally(Job& job, const compiler::Plan& plan) {
  bool differs = false;
  for (const GradientPart& gradient : contributions(job, plan)) {
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

// ---- micro-batches ----

bool drop_micro_batch(Job& job, const compiler::Plan& plan) {
  std::optional<TaskId> dropped;  // one of its tasks
  for (const GradientPart& gradient : contributions(job, plan)) {
    for (TaskId task : gradient.makers) {
      const bool several = std::ranges::any_of(gradient.makers, [&](TaskId other) {
        return other != task && plan.device[other] == plan.device[task];
      });
      if (several && !dropped) dropped = task;
      const bool same = dropped && plan.device[task] == plan.device[*dropped] &&
                        plan.begin[task] == plan.begin[*dropped];
      if (same) scale_stored(job, plan, task, gradient.base, 0);
    }
  }
  return dropped.has_value();
}

// Where each slot of a device gets its value in the compute queue, and each instruction's place.
struct Places {
  IdVector<SlotId, std::size_t> stored;
  IdVector<InstructionId, std::size_t> of;
};
constexpr std::size_t kNowhere = std::size_t(-1);

Places places_in(const Program& program) {
  Places places{IdVector<SlotId, std::size_t>(program.slots.size(), kNowhere),
                IdVector<InstructionId, std::size_t>(program.instructions.size(), kNowhere)};
  const auto& queue = program.queues[static_cast<std::size_t>(Queue::kCompute)];
  for (std::size_t i = 0; i < queue.size(); ++i) {
    places.of[queue[i]] = i;
    for (const BodyStep& step : program.instructions[queue[i]].body) {
      if (step.kind == BodyStep::Kind::kStore) places.stored[step.slot] = i;
    }
  }
  return places;
}

void read_instead(Instruction& instruction, SlotId old, SlotId now) {
  for (BodyStep& step : instruction.body) {
    if (step.slot == old && step.kind != BodyStep::Kind::kStore) step.slot = now;
  }
  std::ranges::replace(instruction.reads, old, now);
}

// Two instances of a backward op on one device, of as many samples, that could each read what the
// forward pass left for the other. The last such op: the first ones may ask for a shape alone.
bool swap_turns(Job& job, const compiler::Plan& plan) {
  const graph::ModelGraph& graph = *job.problem->graph;
  const auto saved = [&](const Program& program, const BodyStep& step) {
    if (step.kind != BodyStep::Kind::kLoad) return false;
    const Slot& slot = program.slots[step.slot];
    if (slot.kind != Slot::Kind::kBuffer) return false;
    const OpId maker = graph.tensor(slot.tensor).producer;
    return maker.valid() && graph.op(maker).phase == graph::Phase::kForward &&
           job.problem->splits->rules[slot.tensor].kind == graph::SplitKind::kConcat;
  };
  for (Program& program : job.programs) {
    const Places places = places_in(program);
    std::map<std::pair<OpId, std::int64_t>, InstructionId> seen;  // op, samples
    struct {
      Instruction* earlier = nullptr;
      Instruction* later = nullptr;
      SlotId first, second;  // what they read
    } found;
    for (InstructionId id : program.queues[static_cast<std::size_t>(Queue::kCompute)]) {
      Instruction& later = program.instructions[id];
      const TaskId task = later.task;
      if (plan.kind[task] != TaskKind::kCompute ||
          graph.op(plan.op[task]).phase != graph::Phase::kBackward) {
        continue;
      }
      const auto [at, is_new] =
          seen.try_emplace({plan.op[task], plan.end[task] - plan.begin[task]}, id);
      if (is_new) continue;
      Instruction& earlier = program.instructions[at->second];
      for (const BodyStep& a : earlier.body) {
        for (const BodyStep& b : later.body) {
          if (!saved(program, a) || !saved(program, b) || a.slot == b.slot ||
              program.slots[a.slot].tensor != program.slots[b.slot].tensor ||
              places.stored[b.slot] > places.of[at->second]) {
            continue;
          }
          found = {&earlier, &later, a.slot, b.slot};
        }
      }
    }
    if (!found.earlier) continue;
    read_instead(*found.earlier, found.first, found.second);
    read_instead(*found.later, found.second, found.first);
    return true;
  }
  return false;
}

// The last instance of an op on a device that has several.
bool keep_stale_parameter(Job& job, const compiler::Plan& plan) {
  const graph::ModelGraph& graph = *job.problem->graph;
  for (Program& program : job.programs) {
    std::map<OpId, InstructionId> seen;
    for (InstructionId id : program.queues[static_cast<std::size_t>(Queue::kCompute)]) {
      Instruction& instruction = program.instructions[id];
      const TaskId task = instruction.task;
      if (plan.kind[task] != TaskKind::kCompute ||
          graph.op(plan.op[task]).phase != graph::Phase::kForward ||
          seen.try_emplace(plan.op[task], id).second) {
        continue;
      }
      for (BodyStep& step : instruction.body) {
        if (step.kind != BodyStep::Kind::kLoad) continue;
        const Slot slot = program.slots[step.slot];
        if (slot.kind != Slot::Kind::kResident ||
            !job.problem->folded->updater[slot.tensor].valid())
          continue;
        step.slot = program.slots.push_back(slot);
        return true;
      }
    }
  }
  return false;
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
    case Fault::kDropMicroBatch:
      VALIDATE(drop_micro_batch(job, plan), "the plan has no device with several micro-batches");
      return;
    case Fault::kSwapTurns:
      VALIDATE(swap_turns(job, plan),
               "the plan has no device that keeps two micro-batches of one size at a time");
      return;
    case Fault::kStaleParameter:
      VALIDATE(keep_stale_parameter(job, plan),
               "the plan has no device with several micro-batches that read a parameter");
      return;
    case Fault::kSkipGather:
      VALIDATE(skip_first_gather(job, plan), "the plan has no sharded parameter");
      return;
    case Fault::kOldShard:
      VALIDATE(keep_old_rows(job, plan), "the plan has no sharded parameter");
      return;
    case Fault::kWrongRows:
      VALIDATE(shift_rows(job, plan), "the plan has no sharded parameter");
      return;
    case Fault::kZeroRows:
      VALIDATE(give_zeros(job), "the plan has no frozen parameter that lies in rows");
      return;
  }
}

}  // namespace heterog::runtime

// The pass list: layout, tasks, gradients, updates, memory, priorities.
#include "compiler/compile.h"

#include <utility>

#include "compiler/compilation.h"
#include "compiler/gradients.h"
#include "compiler/order.h"
#include "compiler/overhead.h"

namespace heterog::compiler {
namespace {

using graph::Phase;

void emit_forward_and_backward(const cost::Problem& problem, Movement& movement,
                               SectionRunner& sections) {
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    sections.run(SectionKind::kOp, op.value(), [&] { movement.run(op); });
  }
}

// Ops that several parameters share (a global norm) come before what they are for.
void emit_update(const cost::Problem& problem, Movement& movement, SectionRunner& sections) {
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kUpdate) continue;
    sections.run(SectionKind::kOp, op.value(), [&] { movement.run(op); });
  }
  const auto& chains = problem.folded->chains;
  for (std::size_t i = 0; i < chains.size(); ++i) {
    sections.run(SectionKind::kChain, static_cast<std::uint32_t>(i),
                 [&] { movement.update(chains[i]); });
  }
}

void set_memory(const cost::Problem& problem, const Movement& movement, Plan& plan) {
  plan.static_memory.assign(plan.device_count, {});
  plan.capacity.assign(plan.device_count, 0);
  movement.add_static_memory(plan);
  for (DeviceId device : problem.cluster->device_ids()) {
    plan.static_memory[device].reserve = problem.cluster->type_of(device).reserve_bytes;
    plan.capacity[device] = problem.cluster->device(device).memory_bytes;
  }
}

}  // namespace

void build_plan(const cost::Problem& problem, Compilation& c, Reuse* reuse) {
  SectionRunner sections(c.movement, reuse);
  emit_forward_and_backward(problem, c.movement, sections);
  aggregate_gradients(problem, c.layout, c.bucket_bytes, c.builder, c.movement, sections);
  emit_update(problem, c.movement, sections);
  pull_parameters(problem, c.layout, c.movement, sections);
  sections.run(SectionKind::kOther, 0,
               [&] { average_buffers(problem, c.layout, c.builder, c.movement); });
  sections.run(SectionKind::kOther, 0, [&] { pull_buffers(problem, c.movement); });
  c.end = c.movement.marks();
  add_overheads(*problem.cluster, c.builder);

  c.plan = std::move(c.builder).finish();
  c.plan.batch = problem.batch;
  set_memory(problem, c.movement, c.plan);
  set_ranks(c.plan);
  if (!c.priorities.empty()) set_priorities(c.plan, c.priorities);
#ifdef HETEROG_CHECKS
  verify_plan(c.plan);
#endif
}

Plan compile(const cost::Problem& problem, const Strategy& strategy, const CompileOptions& options,
             Plan recycled) {
  check_strategy(problem, strategy, "strategy");
  Compilation compilation(problem, strategy, options, std::move(recycled));
  build_plan(problem, compilation, nullptr);
  return std::move(compilation.plan);
}

}  // namespace heterog::compiler

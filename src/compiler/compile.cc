// The pass list: layout, tasks, gradients, updates, memory, priorities.
#include "compiler/compile.h"

#include <utility>

#include "compiler/gradients.h"
#include "compiler/layout.h"
#include "compiler/movement.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"

namespace heterog::compiler {
namespace {

using graph::Phase;

void emit_forward_and_backward(const cost::Problem& problem, Movement& movement) {
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kUpdate) movement.run(op);
  }
}

// Ops that several parameters share (a global norm) come before what they are for.
void emit_update(const cost::Problem& problem, Movement& movement) {
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) movement.run(op);
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) movement.update(chain);
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

Plan compile(const cost::Problem& problem, const Strategy& strategy, const CompileOptions& options,
             Plan recycled) {
  check_strategy(problem, strategy, "strategy");
  const Layout layout = lay_out(problem, strategy);
  PlanBuilder builder(problem.cluster->device_count(), problem.cluster->link_count(),
                      std::move(recycled));
  Movement movement(problem, layout, options, builder);

  emit_forward_and_backward(problem, movement);
  aggregate_gradients(problem, layout, strategy.bucket_bytes, builder, movement);
  emit_update(problem, movement);
  pull_parameters(problem, layout, movement);
  average_buffers(problem, layout, builder, movement);

  Plan plan = std::move(builder).finish();
  plan.batch = problem.batch;
  set_memory(problem, movement, plan);
  set_ranks(plan);
#ifdef HETEROG_CHECKS
  verify_plan(plan);
#endif
  return plan;
}

}  // namespace heterog::compiler

// The pass list: layout, tasks, gradients, updates, next values, turns, memory, priorities.
#include "compiler/compile.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "compiler/check/verify_plan.h"
#include "compiler/emit/frozen.h"
#include "compiler/emit/gather_frozen.h"
#include "compiler/emit/gradients.h"
#include "compiler/emit/next_values.h"
#include "compiler/emit/ops.h"
#include "compiler/emit/overhead.h"
#include "compiler/emit/recompute.h"
#include "compiler/emit/shards.h"
#include "compiler/emit/updates.h"
#include "compiler/late_waits.h"
#include "compiler/order.h"
#include "compiler/slowest.h"
#include "compiler/symmetry.h"
#include "compiler/turns.h"
#include "decide/check_strategy.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"
#include "decide/recomputation.h"

namespace heterog::compiler {
namespace {

using graph::Phase;
using graph::TensorRole;

void emit_forward_and_backward(Emission& e) {
  for (OpId op : e.problem.folded->ops) {
    if (e.problem.graph->op(op).phase == Phase::kUpdate) continue;
    if (e.layout.sums_at_its_update(op)) continue;
    if (e.recomputation.any) emit_again(e, op);
    emit_op(e, op);
  }
  if (e.recomputation.any) e.where.read_for(UnitId());
}

// Of gradients that were aggregated each for itself.
void emit_tied_sums(Emission& e) {
  for (OpId op : e.layout.sums_at_update) {
    emit_op(e, op);
    for (TensorId out : e.problem.graph->outputs(op)) {
      if (out.valid()) e.where.set_total(out, e.where.instances(out, op));
    }
  }
}

// Ops that several parameters share (a global norm) come before what they are for.
void emit_updates(Emission& e) {
  for (OpId op : e.problem.folded->ops) {
    if (e.problem.graph->op(op).phase == Phase::kUpdate) emit_op(e, op);
  }
  update_parameters(e);
}

void set_memory(const Emission& e, Plan& plan) {
  const cost::Problem& problem = e.problem;
  plan.static_memory.assign(plan.device_count, {});
  plan.capacity.assign(plan.device_count, 0);
  for (TensorId tensor : problem.graph->tensor_ids()) {
    const TensorRole role = problem.graph->tensor(tensor).role;
    if (problem.graph->tensor(tensor).producer.valid()) continue;
    for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
      StaticMemory& memory = plan.static_memory[device];
      (role == TensorRole::kParameter        ? memory.parameters
       : role == TensorRole::kOptimizerState ? memory.optimizer_state
                                             : memory.buffers) += e.where.resident(tensor, device);
    }
  }
  for (std::size_t i = 0; i < e.compression_state.size(); ++i) {
    plan.static_memory[DeviceId(i)].optimizer_state += e.compression_state[DeviceId(i)];
  }
  for (DeviceId place : id_range<DeviceId>(plan.device_count)) {
    const DeviceId device = device_of(e.symmetry, place);
    plan.static_memory[place].reserve = problem.cluster->type_of(device).reserve_bytes;
    plan.capacity[place] = problem.cluster->device(device).memory_bytes;
  }
}

void set_rows(const Emission& e, Plan& plan) {
  plan.rows.clear();
  const auto by_rows = [](const decide::ParameterHome& home) { return home.by_rows(); };
  if (std::ranges::none_of(e.layout.homes, by_rows)) return;
  IdVector<TensorId, TensorId> parameter_of(e.problem.graph->tensor_count());
  for (const auto& [gradient, parameter] : e.scattered) parameter_of[gradient] = parameter;
  for (TensorId parameter : e.problem.graph->parameters()) {
    if (e.layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    if (e.layout.home(parameter).by_rows()) parameter_of[parameter] = parameter;
  }
  for (TensorId tensor : e.layout.gathered) parameter_of[tensor] = tensor;
  for (TensorId tensor : e.problem.graph->tensor_ids()) {
    const decide::ParameterHome* home = parameter_of[tensor].valid()
                                            ? &e.layout.home(parameter_of[tensor])
                                            : e.layout.row_home(tensor);
    for (std::size_t i = 0; home && i < home->replicas.size(); ++i) {
      plan.rows.push({home->replicas[i], home->rows[i], home->rows[i + 1]});
    }
    plan.rows.end_row();
  }
}

// A transfer leaves a GPU its other multiprocessors; what has no more than it takes is no GPU.
void set_drag(const cluster::Cluster& cluster, const Symmetry* symmetry, Plan& plan) {
  plan.drag.clear();
  for (DeviceId place : id_range<DeviceId>(plan.device_count)) {
    const DeviceId device = device_of(symmetry, place);
    const cluster::DeviceType& type = cluster.type_of(device);
    const int taken = cluster.machine(cluster.device(device).machine).transfer_multiprocessors;
    const int left = type.multiprocessors - taken;
    const double of_transfer = left > 0 ? static_cast<double>(taken) / left : 0;
    const auto thousandths = [](double extra) {
      return static_cast<std::int32_t>(std::lround(1000 * extra));
    };
    plan.drag.push_back({thousandths(type.collective_slowdown - 1),
                         cluster.is_host(device) ? 0 : thousandths(of_transfer)});
  }
  if (std::ranges::all_of(plan.drag.raw(), [](Plan::Drag one) { return one == Plan::Drag(); })) {
    plan.drag.clear();
  }
}

// All passes. `symmetry`: the layout has its representatives alone; null: it has all devices. Says
// whether the plan holds: of representatives it may not, after all.
bool run_passes(const cost::Problem& problem, const decide::Strategy& strategy,
                const CompileOptions& options, const decide::Layout& layout,
                const Symmetry* symmetry, Plan& plan) {
  const cluster::Cluster& cluster = *problem.cluster;
  // No collective of representatives needs its links (emit/costs.h).
  PlanBuilder builder(symmetry ? symmetry->representatives.size() : cluster.place_count(),
                      symmetry ? 0 : cluster.link_count(), std::move(plan));
  set_drag(cluster, symmetry, builder.plan());
  Emission e(problem, layout, options, builder, symmetry);
  e.recomputation = decide::find_recomputation(problem, strategy);
  e.frozen = FrozenGathers(problem, layout, e.recomputation);
  emit_forward_and_backward(e);
  aggregate_gradients(e, strategy.bucket_bytes);
  emit_tied_sums(e);
  emit_updates(e);
  gather_sharded(e);
  pull_parameters(e);
  average_buffers(e);
  pull_buffers(e);
  if (!symmetry) add_overheads(problem, builder);  // whose devices are never alike

  plan = std::move(builder).finish();
  if (e.moves) return false;
  plan = with_late_waits(std::move(plan), waits_between_rounds(e, strategy.pattern), e.again);
  if (strategy.strict) {
    plan = take_turns(problem, strategy, layout, e.again, std::move(plan));
  }
  plan.batch = problem.batch;
  set_memory(e, plan);
  if (symmetry) {
    plan.rows.clear();
  } else {
    set_rows(e, plan);
  }
  wait_for_slowest(cluster, plan, symmetry);
  set_order(plan, strategy.order, decide::priorities_of(problem, strategy, layout));
#ifdef HETEROG_CHECKS
  if (!symmetry) verify_plan(plan);
#endif
  return true;
}

}  // namespace

Plan compile(const cost::Problem& problem, const decide::Strategy& strategy,
             const CompileOptions& options, Plan recycled) {
  decide::check_strategy(problem, strategy, "strategy");
  const decide::Layout layout = decide::lay_out(problem, strategy);
  run_passes(problem, strategy, options, layout, nullptr, recycled);
  return recycled;
}

PlanOfFew compile_few(const cost::Problem& problem, const decide::Strategy& strategy,
                      const CompileOptions& options, Plan recycled) {
  decide::check_strategy(problem, strategy, "strategy");
  return compile_few(problem, strategy, decide::lay_out(problem, strategy), options,
                     std::move(recycled));
}

PlanOfFew compile_few(const cost::Problem& problem, const decide::Strategy& strategy,
                      const decide::Layout& layout, const CompileOptions& options, Plan recycled) {
  if (auto symmetry = find_symmetry(problem, strategy, layout)) {
    const decide::Layout few = of_representatives(layout, *symmetry);
    if (run_passes(problem, strategy, options, few, &*symmetry, recycled)) {
      return {std::move(recycled), std::move(symmetry->place_of)};
    }
  }
  run_passes(problem, strategy, options, layout, nullptr, recycled);
  return {std::move(recycled), {}};
}

}  // namespace heterog::compiler

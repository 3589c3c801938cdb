// A plain interpreter of graphs.
#include "runtime/reference_step.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/check.h"
#include "runtime/random.h"
#include "runtime/slices.h"
#include "runtime/step.h"

namespace heterog::runtime {

using graph::OperandUse;
using graph::SplitKind;
using graph::SplitRule;
using graph::TensorRole;

ReferenceStep::ReferenceStep(const cost::Problem& problem, const compiler::Plan& plan,
                             const Options& options)
    : problem_(problem),
      graph_(*problem.graph),
      options_(options),
      slices_(graph_.op_count()),
      dead_(dead_after(graph_)),
      residents_(graph_.tensor_count()),
      values_(graph_.tensor_count()),
      local_(graph_.tensor_count()) {
  const graph::SplitAnalysis& splits = *problem.splits;
  IdVector<OpId, std::vector<Interval>> of_plan(graph_.op_count());
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != compiler::TaskKind::kCompute) continue;
    of_plan[plan.op[task]].push_back({plan.begin[task], plan.end[task]});
  }
  for (OpId op : graph_.op_ids()) {
    bool local = false;
    for (OperandUse use : splits.uses[op]) local |= use == OperandUse::kLocal;
    for (TensorId out : graph_.outputs(op)) {
      local |= out.valid() && splits.rules[out].kind == SplitKind::kLocal;
    }
    if (!local) continue;
    std::sort(of_plan[op].begin(), of_plan[op].end());
    slices_[op] = of_plan[op];
    if (!slices_[op].empty()) continue;
    // A view of what is local.
    slices_[op] = slices_[graph_.tensor(graph_.inputs(op)[0]).producer];
    ENSURE(!slices_[op].empty());
  }
}

ReferenceStep::Result ReferenceStep::step(std::int64_t number, const StepInputs& inputs) {
  const c10::InferenceMode no_gradients;
  step_ = number;
  for (TensorId id : graph_.tensor_ids()) {
    if (residents_[id].defined()) values_[id] = residents_[id];
  }
  for (const auto& [id, value] : inputs) values_[id] = value;
  Result result;
  std::vector<std::pair<TensorId, at::Tensor>> replaced;
  for (OpId op : graph_.op_ids()) {
    run(op);
    for (TensorId out : graph_.outputs(op)) {
      if (!out.valid()) continue;
      const graph::Tensor& info = graph_.tensor(out);
      if (out == graph_.loss()) result.loss = values_[out].to(at::kDouble).item<double>();
      if (info.role == TensorRole::kGradient) result.gradients.emplace_back(out, values_[out]);
      if (info.replaces.valid()) replaced.emplace_back(info.replaces, values_[out]);
    }
    for (TensorId dead : dead_[op]) {
      values_[dead].reset();
      local_[dead].clear();
    }
  }
  for (auto& [id, value] : replaced) residents_[id] = value.contiguous();
  for (TensorId id : graph_.tensor_ids()) {
    values_[id].reset();
    local_[id].clear();
  }
  return result;
}

void ReferenceStep::run(OpId op) {
  if (!slices_[op].empty()) return run_slices(op, slices_[op]);
  if (graph_.type_name(op) == "aten.native_dropout.default" && graph_.args(op)[2].integer.c != 0) {
    return draw(op);
  }
  run_whole(op);
}

void ReferenceStep::run_whole(OpId op) {
  std::vector<at::Tensor> operands;
  for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
  const auto results =
      execute(graph_, op, operands, {problem_.batch, problem_.batch}, {.floats = options_.floats});
  const auto outputs = graph_.outputs(op);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) values_[outputs[i]] = results[i];
  }
}

void ReferenceStep::run_slices(OpId op, const std::vector<Interval>& slices) {
  const graph::SplitAnalysis& splits = *problem_.splits;
  const auto inputs = graph_.inputs(op);
  const auto outputs = graph_.outputs(op);
  std::vector<std::vector<at::Tensor>> made(outputs.size());
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::int64_t size = slices[s].end - slices[s].begin;
    std::vector<at::Tensor> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const SplitRule rule = graph::seen_rule(graph_, splits, inputs[i]);
      if (rule.kind == SplitKind::kLocal) {
        operands.push_back(local_[inputs[i]][s]);
      } else if (rule.kind == SplitKind::kConcat) {
        operands.push_back(cut_samples(
            values_[inputs[i]], {rule.dim, rule.outer, problem_.batch, slices[s].begin, size}));
      } else {
        operands.push_back(values_[inputs[i]]);
      }
    }
    const auto results =
        execute(graph_, op, operands, {size, problem_.batch}, {.floats = options_.floats});
    for (std::size_t i = 0; i < outputs.size(); ++i) made[i].push_back(results[i]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid() || !made[i][0].defined()) continue;
    const SplitRule rule = splits.rules[outputs[i]];
    at::Tensor& value = values_[outputs[i]];
    if (rule.kind == SplitKind::kLocal) {
      local_[outputs[i]] = made[i];
    } else if (rule.kind == SplitKind::kConcat) {
      value = join_samples(made[i], rule.dim, rule.outer);
    } else if (rule.kind == SplitKind::kSum || rule.kind == SplitKind::kMean) {
      value = at::zeros_like(made[i][0]);
      for (std::size_t s = 0; s < slices.size(); ++s) {
        const double share = static_cast<double>(slices[s].end - slices[s].begin) /
                             static_cast<double>(problem_.batch);
        value = value + made[i][s] * (rule.kind == SplitKind::kMean ? share : 1.0);
      }
    } else {
      value = made[i][0];
    }
  }
}

// native_dropout(x, rate, train) → x · mask / (1 − rate), mask.
void ReferenceStep::draw(OpId op) {
  const at::Tensor& x = values_[graph_.inputs(op)[0]];
  const double rate = graph_.args(op)[1].number;
  const auto outputs = graph_.outputs(op);
  const at::Tensor mask =
      keep_mask({options_.seed, step_, op}, rate, x.sizes().vec(), Cut{}, at::kCPU);
  const double scale = rate < 1 ? 1 / (1 - rate) : 0.0;
  if (outputs[0].valid()) values_[outputs[0]] = x * mask * scale;
  if (outputs.size() > 1 && outputs[1].valid()) values_[outputs[1]] = mask;
}

}  // namespace heterog::runtime

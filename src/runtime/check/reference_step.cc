// A plain interpreter of graphs.
#include "runtime/check/reference_step.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "graph/last_reads.h"
#include "operators/facts.h"
#include "runtime/attention/attention.h"
#include "runtime/exec/slices.h"
#include "runtime/kernels/draw.h"
#include "runtime/kernels/random.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {

using graph::TensorRole;

namespace {

// Whether the op takes statistics over the samples.
bool takes_statistics(const graph::ModelGraph& graph, OpId op) {
  const auto& statistics = graph.facts(op).batch_statistics;
  const auto args = graph.args(op);
  return statistics && statistics->training < args.size() &&
         args[statistics->training].integer.c != 0;
}

}  // namespace

IdVector<OpId, NormalisedSlices> normalised_slices(const cost::Problem& problem,
                                                   const compiler::Plan& plan) {
  const graph::ModelGraph& graph = *problem.graph;
  IdVector<OpId, NormalisedSlices> normalised(graph.op_count());
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != compiler::TaskKind::kCompute) continue;
    const OpId op = plan.op[task];
    if (!takes_statistics(graph, op)) continue;
    const TensorId x = graph.inputs(op)[0];
    if (graph.shape(x)[0].constant()) continue;  // of no sample: the same on every slice
    if (plan.begin[task] == plan.end[task]) continue;
    normalised[op].outer = graph::seen_rule(graph, *problem.splits, x).outer;
    normalised[op].slices.push_back({plan.begin[task], plan.end[task]});
  }
  for (NormalisedSlices& of_op : normalised) {
    std::sort(of_op.slices.begin(), of_op.slices.end());
    if (of_op.slices.size() == 1) of_op.slices.clear();
  }
  return normalised;
}

ReferenceStep::ReferenceStep(const graph::ModelGraph& graph,
                             IdVector<OpId, NormalisedSlices> normalised, const Options& options)
    : graph_(graph),
      normalised_(std::move(normalised)),
      options_(options),
      dead_(graph::dead_after(graph_)),
      residents_(graph_.tensor_count()),
      values_(graph_.tensor_count()),
      statistics_(graph_.tensor_count()) {}

ReferenceStep::Exceptions ReferenceStep::exceptions() const {
  Exceptions exceptions;
  for (OpId op : graph_.op_ids()) {
    if (!normalised_[op].slices.empty() && !graph_.facts(op).batch_statistics->backward) {
      ++exceptions.batch_norms;
    }
    if (is_drawn_by_counter(graph_, op) && drawn_for(graph_, op) == op) ++exceptions.random;
  }
  return exceptions;
}

ReferenceStep::Result ReferenceStep::step(std::int64_t number, const StepInputs& inputs) {
  const c10::InferenceMode no_gradients;
  step_ = number;
  for (TensorId id : graph_.tensor_ids()) {
    if (residents_[id].defined()) values_[id] = residents_[id];
  }
  for (const auto& [id, value] : inputs) values_[id] = laid_as(graph_.tensor(id), value);
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
      statistics_[dead].clear();
    }
  }
  for (auto& [id, value] : replaced) residents_[id] = laid_as(graph_.tensor(id), value);
  for (TensorId id : graph_.tensor_ids()) {
    values_[id].reset();
    statistics_[id].clear();
  }
  return result;
}

void ReferenceStep::run(OpId op) {
  if (!normalised_[op].slices.empty()) return normalise(op);
  if (reads_statistics(op)) return run_views(op);
  if (is_drawn_by_counter(graph_, op)) return draw(op);
  run_whole(op);
}

bool ReferenceStep::reads_statistics(OpId op) const {
  const auto inputs = graph_.inputs(op);
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](TensorId id) { return !statistics_[id].empty(); });
}

void ReferenceStep::run_whole(OpId op) {
  std::vector<at::Tensor> operands;
  for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
  const auto results =
      execute(graph_, op, operands, {options_.batch, options_.batch}, {.floats = options_.floats});
  const auto outputs = graph_.outputs(op);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) values_[outputs[i]] = results[i];
  }
}

// Statistics of slices are for the backward operator, which may see them through views.
void ReferenceStep::run_views(OpId op) {
  if (!graph_.op(op).alias) {
    throw Error(ErrorKind::kVerification,
                fmt::format("op '{}' reads statistics that a batch normalisation takes of each "
                            "slice; on one device there are none",
                            printable(graph_.op(op).name)));
  }
  const auto outputs = graph_.outputs(op);
  for (const at::Tensor& of_slice : statistics_[graph_.inputs(op)[0]]) {
    const auto results = execute(graph_, op, std::span(&of_slice, 1),
                                 {options_.batch, options_.batch}, {.floats = options_.floats});
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].valid()) statistics_[outputs[i]].push_back(results[i]);
    }
  }
}

// Forward: (x, …) → result, saved mean, saved 1/deviation and, with running statistics, their next
// values. Backward: (gradient, x, …) → the gradients of x, weight and bias.
void ReferenceStep::normalise(OpId op) {
  const operators::BatchStatistics& one = *graph_.facts(op).batch_statistics;
  const auto& [slices, outer] = normalised_[op];
  const auto inputs = graph_.inputs(op);
  const auto outputs = graph_.outputs(op);
  std::vector<std::vector<at::Tensor>> made(outputs.size());
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const std::int64_t size = slices[s].end - slices[s].begin;
    std::vector<at::Tensor> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i < one.samples) {
        operands.push_back(
            cut_samples(values_[inputs[i]], {0, outer, options_.batch, slices[s].begin, size}));
      } else if (!statistics_[inputs[i]].empty()) {
        operands.push_back(statistics_[inputs[i]].at(s));
      } else {
        operands.push_back(values_[inputs[i]]);
      }
    }
    const auto results =
        execute(graph_, op, operands, {size, options_.batch}, {.floats = options_.floats});
    for (std::size_t i = 0; i < outputs.size(); ++i) made[i].push_back(results[i]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid() || !made[i][0].defined()) continue;
    if (i == 0) {
      values_[outputs[i]] = join_samples(made[i], 0, outer);
      continue;
    }
    if (!one.backward && i <= 2) {
      statistics_[outputs[i]] = made[i];
      continue;
    }
    // Gradients of weights add up; running statistics are means weighted by the slices' shares.
    at::Tensor& value = values_[outputs[i]];
    value = at::zeros_like(made[i][0]);
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const double share = static_cast<double>(slices[s].end - slices[s].begin) /
                           static_cast<double>(options_.batch);
      value = value + made[i][s] * (one.backward ? 1.0 : share);
    }
  }
}

// The numbers of the whole batch. Dropout, native_dropout(x, rate, train), is x · mask / (1 −
// rate).
void ReferenceStep::draw(OpId op) {
  if (is_attention(graph_, op)) return attend(op);
  std::vector<at::Tensor> operands;
  for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
  const auto outputs = graph_.outputs(op);
  std::vector<at::Tensor> results;
  if (graph_.facts(op).draw == operators::Draw::kMask) {
    const at::Tensor& x = operands[0];
    const double rate = dropped_share(graph_, op);
    const at::Tensor mask =
        keep_mask({options_.seed, step_, op}, rate, x.sizes().vec(), Cut{}, at::kCPU);
    results = {x * mask * (rate < 1 ? 1 / (1 - rate) : 0.0), mask};
  } else {
    const ExecuteOptions execute_options{.floats = options_.floats};
    const OperatorCall call(graph_, op, {options_.batch, options_.batch}, execute_options);
    results = runtime::draw(graph_, call, operands,
                            {{options_.seed, step_, op}, 0, options_.batch, options_.batch},
                            {graph::SplitKind::kSame}, execute_options);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) values_[outputs[i]] = results.at(i);
  }
}

// Attention that drops weights, by plain operators over the whole batch: P = softmax(Q Kᵀ · scale +
// mask), D what is kept of it, result (P ∘ D) V; backward the product rule and softmax's gradient.
void ReferenceStep::attend(OpId op) {
  std::vector<at::Tensor> operands;
  for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
  Attention a = attention_of(graph_, op, operands);
  // Half precision is that of the operands and the results; between them are sums in float32.
  const at::ScalarType type = a.query.scalar_type();
  const bool half = type == at::kHalf || type == at::kBFloat16;
  if (half) {
    for (at::Tensor* x : {&a.query, &a.key, &a.value, &a.gradient}) {
      if (x->defined()) *x = x->to(at::kFloat);
    }
  }
  at::Tensor scores = at::matmul(a.query, a.key.transpose(2, 3)) * a.scale;
  const double never = -std::numeric_limits<double>::infinity();
  if (a.mask.defined()) {
    scores =
        a.mask.scalar_type() == at::kBool ? scores.masked_fill(~a.mask, never) : scores + a.mask;
  }
  if (a.causal) scores = scores.masked_fill(~at::ones_like(scores, at::kBool).tril(), never);
  const at::Tensor nothing = (scores == never).all(3, /*keepdim=*/true);
  const at::Tensor p = at::softmax(scores, 3).masked_fill(nothing, 0);
  const at::Tensor kept = keep_mask({options_.seed, step_, drawn_for(graph_, op)}, a.rate,
                                    scores.sizes().vec(), Cut{}, at::kCPU);
  const at::Tensor d = kept * (a.rate < 1 ? 1 / (1 - a.rate) : 0.0);
  std::vector<at::Tensor> results;
  if (!a.gradient.defined()) {
    results = {at::matmul(p * d, a.value).to(type), at::logsumexp(scores, 3)};
  } else {
    const at::Tensor to_p = at::matmul(a.gradient, a.value.transpose(2, 3)) * d;
    const at::Tensor to_scores = p * (to_p - (to_p * p).sum(3, /*keepdim=*/true)) * a.scale;
    results = {at::matmul(to_scores, a.key), at::matmul(to_scores.transpose(2, 3), a.query),
               at::matmul((p * d).transpose(2, 3), a.gradient)};
    for (at::Tensor& result : results) result = result.to(type);
  }
  const auto outputs = graph_.outputs(op);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) values_[outputs[i]] = results[i];
  }
}

}  // namespace heterog::runtime

// Executes one op on a whole batch and on its slices, and compares under the rules of the table.
#include "split_proof/op_proof.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "graph/split_rules.h"
#include "runtime/kernels/draw.h"
#include "runtime/program/draws.h"
#include "split_proof/execute.h"
#include "split_proof/operands.h"

namespace heterog::split_proof {
namespace {

using graph::SplitKind;
using graph::SplitRule;
using graph::Value;

constexpr double kTolerance = 1e-10;

// Operators make float32 of integers.
double tolerance_of(const at::Tensor& value) {
  return value.scalar_type() == at::kFloat ? 1e-5 : kTolerance;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Contents are what was in memory.
bool undetermined(std::string_view type) { return contains(type, "empty"); }

// One execution of the whole and of every slice.
struct Run {
  std::vector<OperandValues> operands;
  std::vector<at::Tensor> whole;
  std::vector<std::vector<at::Tensor>> slices;

  std::vector<at::Tensor> slices_of(std::size_t output) const {
    std::vector<at::Tensor> result;
    for (const auto& slice : slices) result.push_back(slice[output]);
    return result;
  }
};

// Random numbers follow from the place in the batch, which is [begin, end) of `batch`.
std::vector<at::Tensor> execute_slice(const graph::ModelGraph& graph,
                                      const graph::SplitAnalysis& splits, OpId op,
                                      std::span<const at::Tensor> operands, std::int64_t begin,
                                      std::int64_t end, std::int64_t batch) {
  const Samples samples{.slice = end - begin, .whole = batch};
  if (!runtime::is_drawn_by_counter(graph, op)) return execute(graph, op, operands, samples);
  const runtime::DrawnSlice slice{{5, 1, runtime::drawn_for(graph, op)}, begin, end, batch};
  if (runtime::is_attention(graph, op)) {
    const SplitRule& held = seen_rule(graph, splits, graph.inputs(op)[0]);
    return runtime::run_attention(graph, op, operands, slice.stream,
                                  runtime::drawn_cut(held, slice));
  }
  const runtime::ExecuteOptions options{.floats = runtime::Floats::kDouble};
  const runtime::OperatorCall call(graph, op, samples, options);
  return runtime::draw(graph, call, operands, slice, splits.rules[graph.outputs(op)[0]], options);
}

Run run(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits, OpId op,
        const SliceSizes& sizes, Content content) {
  Run result;
  result.operands = random_operands(graph, splits, op, sizes, content);
  const std::int64_t batch = whole_batch(sizes);
  std::vector<at::Tensor> arguments;
  for (const OperandValues& values : result.operands) arguments.push_back(values.whole);
  result.whole = execute_slice(graph, splits, op, arguments, 0, batch, batch);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    arguments.clear();
    for (const OperandValues& values : result.operands) arguments.push_back(values.slices[i]);
    result.slices.push_back(
        execute_slice(graph, splits, op, arguments, begin, begin + sizes[i], batch));
    begin += sizes[i];
  }
  return result;
}

std::string check_output(const Run& run, std::size_t output, const SplitRule& rule,
                         const SliceSizes& sizes) {
  const std::vector<at::Tensor> slices = run.slices_of(output);
  const at::Tensor& whole = run.whole[output];
  const bool partial = rule.kind == SplitKind::kSum || rule.kind == SplitKind::kMean;
  if (partial && !whole.isfinite().all().item<bool>()) return {};  // ∞ − ∞, over a zero
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool fits =
        rule.kind == SplitKind::kConcat
            ? agree(slices[i], cut(whole, rule, sizes, i), tolerance_of(whole))
            : rule.kind != SplitKind::kSame || agree(slices[i], whole, tolerance_of(whole));
    if (!fits) return fmt::format("slice {} of output {} is not what the whole has", i, output);
  }
  if (!agree(merge(slices, rule, sizes), whole, tolerance_of(whole))) {
    return fmt::format("the slices of output {} do not make the whole by {}", output,
                       graph::split_kind_name(rule.kind));
  }
  return {};
}

// Numbers of rows are those of the whole on the whole, and those of the slice on a slice: that is
// what their readers take them for.
std::string check_rows(const Run& run, std::size_t output, std::span<const graph::Affine> shape,
                       const SliceSizes& sizes) {
  if (!agree(run.whole[output].to(at::kLong), row_numbers(shape, whole_batch(sizes)), 0)) {
    return fmt::format("output {} is not the numbers of the rows", output);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!agree(run.slices[i][output].to(at::kLong), row_numbers(shape, sizes[i]), 0)) {
      return fmt::format("slice {} of output {} is not the numbers of its rows", i, output);
    }
  }
  return {};
}

std::string check_sizes(const Run& run, std::size_t output, const SplitRule& rule,
                        const SliceSizes& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const at::Tensor expected = rule.kind == SplitKind::kConcat
                                    ? cut(run.whole[output], rule, sizes, i)
                                    : run.whole[output];
    if (run.slices[i][output].sizes() != expected.sizes()) {
      return fmt::format("slice {} of output {} has other sizes than the whole", i, output);
    }
  }
  return {};
}

// native_dropout(x, p, train): result = x · mask / (1 − p), on each slice.
std::string check_dropout(const graph::ModelGraph& graph, OpId op, const Run& run) {
  const double rate = graph.args(op)[1].number;
  for (std::size_t i = 0; i < run.slices.size(); ++i) {
    const at::Tensor masked = run.operands[0].slices[i] * run.slices[i][1] / (1 - rate);
    if (!agree(run.slices[i][0], masked, kTolerance)) return "not the operand under the mask";
  }
  return {};
}

// Running variance is of the unbiased kind: takes the factor n / (n − 1) out of its increment.
at::Tensor biased(const at::Tensor& next, const at::Tensor& before, double momentum, double count) {
  return (next - (1 - momentum) * before) * ((count - 1) / count);
}

std::string check_batch_norm(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
                             OpId op, const SliceSizes& sizes) {
  const auto outputs = graph.outputs(op);
  const bool functional = contains(graph.type_name(op), "_functional");
  if (functional) {
    const Run random = run(graph, splits, op, sizes, Content::kRandom);
    if (const auto wrong = check_output(random, 3, splits.rules[outputs[3]], sizes);
        !wrong.empty()) {
      return wrong;
    }
  }
  const SliceSizes equal(3, 2);
  const Run repeated = run(graph, splits, op, equal, Content::kRepeated);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    const SplitRule rule = splits.rules[outputs[i]];
    if (functional && i == 4) {
      const double momentum = graph.args(op)[6].number;
      const at::Tensor& x = repeated.operands[0].whole;
      const double count = static_cast<double>(x.numel() / x.size(1));
      const at::Tensor& before = repeated.operands[4].whole;
      const at::Tensor merged = merge(repeated.slices_of(4), rule, equal);
      if (!agree(biased(merged, before, momentum, count / 3),
                 biased(repeated.whole[4], before, momentum, count), kTolerance)) {
        return "the running variance of the slices is not that of the whole";
      }
      continue;
    }
    if (const auto wrong = check_output(repeated, i, rule, equal); !wrong.empty()) return wrong;
  }
  return {};
}

void describe(const Value& value, const graph::ModelGraph& graph, std::string& text) {
  switch (value.kind) {
    case Value::Kind::kTensor:
      text += "T";
      break;
    case Value::Kind::kList:
      text += "[";
      for (const Value& item : value.items) describe(item, graph, text);
      text += "]";
      break;
    default:
      text += fmt::format("({} {} {} {} {} {})", static_cast<int>(value.kind), value.integer.a,
                          value.integer.c, value.number, value.offset, value.text);
  }
}

void describe(TensorId id, const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
              std::string& text) {
  if (!id.valid()) {
    text += "; none";
    return;
  }
  const SplitRule rule = seen_rule(graph, splits, id);
  text += fmt::format("; {} {}({},{})", graph::dtype_name(graph.tensor(id).dtype),
                      graph::split_kind_name(rule.kind), rule.dim, rule.outer);
  for (const graph::Affine& size : graph.shape(id)) text += " " + graph::affine_text(size);
}

}  // namespace

std::string prove_op(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits, OpId op,
                     const SliceSizes& sizes) {
  const std::string_view type = graph.type_name(op);
  at::manual_seed(7);
  if (contains(type, "batch_norm")) return check_batch_norm(graph, splits, op, sizes);
  const Run result = run(graph, splits, op, sizes, Content::kRandom);
  const auto outputs = graph.outputs(op);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    const SplitRule rule = splits.rules[outputs[i]];
    std::string wrong;
    if (rule.kind == SplitKind::kLocal) {
      // Statistics of a slice, which have no rows, mean nothing to the whole.
      const auto shape = graph.shape(outputs[i]);
      if (graph::has_batch(shape)) wrong = check_rows(result, i, shape, sizes);
    } else {
      wrong = undetermined(type) ? check_sizes(result, i, rule, sizes)
                                 : check_output(result, i, rule, sizes);
    }
    if (!wrong.empty()) return wrong;
  }
  return type == "aten.native_dropout.default" ? check_dropout(graph, op, result) : std::string();
}

std::string form_of(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits, OpId op) {
  std::string text(graph.type_name(op));
  for (const Value& value : graph.args(op)) describe(value, graph, text);
  for (const auto& [key, value] : graph.kwargs(op)) {
    text += " " + key;
    describe(value, graph, text);
  }
  const auto inputs = graph.inputs(op);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    describe(inputs[i], graph, splits, text);
    text += fmt::format(" use {}", static_cast<int>(splits.uses[op][i]));
    for (std::size_t j = 0; j < i; ++j) {
      if (inputs[j] == inputs[i]) text += fmt::format(" = {}", j);
    }
  }
  for (TensorId output : graph.outputs(op)) describe(output, graph, splits, text);
  return text;
}

}  // namespace heterog::split_proof

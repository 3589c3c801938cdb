// Runs a whole training step in lockstep over the slices of a batch, as the split analysis says.
#include "split_proof/step.h"

#include <vector>

#include "base/check.h"
#include "operators/facts.h"
#include "runtime/program/draws.h"
#include "split_proof/operands.h"

namespace heterog::split_proof {
namespace {

using graph::OperandUse;
using graph::SplitKind;
using graph::SplitRule;
using graph::TensorRole;

class Lockstep {
 public:
  Lockstep(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
           const StepOptions& options)
      : graph_(graph),
        splits_(splits),
        options_(options),
        batch_(whole_batch(options.sizes)),
        held_(graph.tensor_count()) {}

  void give(TensorId id, const at::Tensor& whole) {
    const SplitRule rule = splits_.rules[id];
    if (rule.kind == SplitKind::kWhole) {
      held_[id] = {whole};
      return;
    }
    for (std::size_t i = 0; i < slices(); ++i) {
      const bool sliced = rule.kind == SplitKind::kConcat;
      held_[id].push_back(sliced ? cut(whole, rule, options_.sizes, i) : whole);
    }
  }

  void run(OpId op) {
    if (is_random(op)) {
      draw(op);
    } else if (!splits_.sliceable[op]) {
      run_whole(op);
    } else {
      for (std::size_t i = 0; i < slices(); ++i) {
        hold(op,
             execute(graph_, op, operands(op, i), samples(i), options_.batch_norm, held(op, i)));
      }
    }
  }

  at::Tensor whole(TensorId id) const {
    return merge(held_[id], splits_.rules[id], options_.sizes);
  }

 private:
  std::size_t slices() const { return options_.sizes.size(); }
  // What the first operand of an op holds of the whole batch.
  runtime::Cut held(OpId op, std::size_t slice) const {
    // Where the samples of the whole are repeated, so would their random numbers have to be.
    ENSURE(options_.repeats == 1 || !drops_weights(graph_, op));
    const auto inputs = graph_.inputs(op);
    if (inputs.empty() || seen_rule(graph_, splits_, inputs[0]).kind != SplitKind::kConcat) {
      return {};
    }
    std::int64_t before = 0;
    for (std::size_t i = 0; i < slice; ++i) before += options_.sizes[i];
    return {0, 1, batch_, before, options_.sizes[slice]};
  }
  Samples samples(std::size_t slice) const {
    return {.slice = options_.sizes[slice], .whole = batch_};
  }

  void hold(OpId op, const std::vector<at::Tensor>& results) {
    const auto outputs = graph_.outputs(op);
    ENSURE(outputs.size() <= results.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].valid()) held_[outputs[i]].push_back(results[i]);
    }
  }

  at::Tensor operand(TensorId id, OperandUse use, std::size_t slice) const {
    const auto& held = held_[id];
    const bool whole_made = splits_.rules[id].kind == SplitKind::kWhole;
    switch (use) {
      case OperandUse::kSlice:
        return whole_made ? cut(held[0], seen_rule(graph_, splits_, id), options_.sizes, slice)
                          : held[slice];
      case OperandUse::kOnce: {
        const at::Tensor& value = held[whole_made ? 0 : slice];
        return slice == 0 ? value : at::zeros_like(value);
      }
      case OperandUse::kReduced:
      case OperandUse::kWhole:
        return whole(id);
      default:
        return held[whole_made ? 0 : slice];
    }
  }

  std::vector<at::Tensor> operands(OpId op, std::size_t slice) const {
    const auto inputs = graph_.inputs(op);
    std::vector<at::Tensor> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      values.push_back(operand(inputs[i], splits_.uses[op][i], slice));
    }
    return values;
  }

  void run_whole(OpId op) {
    hold(op, execute(graph_, op, operands(op, 0), {.slice = batch_, .whole = batch_},
                     options_.batch_norm));
  }

  // Beside attention, dropouts are the only random operators of the zoo; others would have to be
  // added here.
  bool is_random(OpId op) const {
    if (!runtime::is_drawn_by_counter(graph_, op) || runtime::is_attention(graph_, op)) {
      return false;
    }
    ENSURE(graph_.facts(op).draw == operators::Draw::kMask);
    return true;
  }

  // native_dropout(x, p, train) → x · mask / (1 − p), mask.
  void draw(OpId op) {
    const TensorId mask_id = graph_.outputs(op)[1];
    const SplitRule rule = splits_.rules[mask_id];
    at::manual_seed(op.value() + 1);
    const double rate = graph_.args(op)[1].number;
    const at::Tensor once =
        at::rand(sizes_at(graph_.shape(mask_id), batch_ / options_.repeats)) >= rate;
    const std::vector<at::Tensor> parts(options_.repeats, once);
    const at::Tensor mask =
        merge(parts, rule, SliceSizes(options_.repeats, batch_ / options_.repeats));
    for (std::size_t i = 0; i < slices(); ++i) {
      const at::Tensor own =
          rule.kind == SplitKind::kConcat ? cut(mask, rule, options_.sizes, i) : mask;
      hold(op, {operands(op, i)[0] * own / (1 - rate), own});
    }
  }

  const graph::ModelGraph& graph_;
  const graph::SplitAnalysis& splits_;
  const StepOptions& options_;
  std::int64_t batch_;
  IdVector<TensorId, std::vector<at::Tensor>> held_;  // a slice each; one if made whole
};

}  // namespace

Values run_step(const graph::ModelGraph& graph, const graph::SplitAnalysis& splits,
                const Values& sources, const StepOptions& options) {
  Lockstep lockstep(graph, splits, options);
  for (TensorId id : graph.tensor_ids()) {
    if (sources[id].defined()) lockstep.give(id, sources[id]);
  }
  for (OpId op : graph.op_ids()) lockstep.run(op);
  Values results(graph.tensor_count());
  for (TensorId id : graph.tensor_ids()) {
    const TensorRole role = graph.tensor(id).role;
    if (role == TensorRole::kGradient || role == TensorRole::kOutput) {
      results[id] = lockstep.whole(id);
    }
  }
  return results;
}

}  // namespace heterog::split_proof

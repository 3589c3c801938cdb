// Writes the form of ops as text, and gathers ops by it.
#include "measure/distinct_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "graph/value_text.h"

namespace heterog::measure {
namespace {

using graph::Value;

class FormWriter {
 public:
  explicit FormWriter(const graph::ModelGraph& graph) : graph_(graph) {}

  std::string op_text(OpId op) {
    std::string text(graph_.type_name(op));
    text += "(";
    const char* between = "";
    for (const Value& value : graph_.args(op)) {
      text += between + value_text(value);
      between = ", ";
    }
    for (const auto& [key, value] : graph_.kwargs(op)) {
      text += between + key + "=" + value_text(value);
      between = ", ";
    }
    return text + ")";
  }

  // The tensors named, in the order of their places in the text.
  const std::vector<TensorId>& tensors() const { return tensors_; }
  bool batched() const { return batched_; }

 private:
  std::string value_text(const Value& value) {
    switch (value.kind) {
      case Value::Kind::kNone:
        return "none";
      case Value::Kind::kBool:
        return value.integer.c != 0 ? "true" : "false";
      case Value::Kind::kInt:
        return std::to_string(value.integer.c);
      case Value::Kind::kFloat:
        return fmt::format("{}", value.number);
      case Value::Kind::kTensor:
        return tensor_text(value.tensor);
      case Value::Kind::kList: {
        std::string text = "[";
        for (std::size_t i = 0; i < value.items.size(); ++i) {
          text += (i ? "," : "") + value_text(value.items[i]);
        }
        return text + "]";
      }
      case Value::Kind::kSize:
        batched_ |= !value.integer.constant();
        return graph::value_text(value);
      default:
        // Scalars of the whole batch: the number differs from batch to batch, the work does not.
        return graph::value_text(value);
    }
  }

  std::string tensor_text(TensorId id) {
    // The same tensor again is read from nearer memory.
    const auto known = std::find(tensors_.begin(), tensors_.end(), id);
    if (known != tensors_.end()) return fmt::format("={}", known - tensors_.begin());
    tensors_.push_back(id);
    batched_ |= graph_.tensor(id).has_batch;
    const OpId producer = graph_.tensor(id).producer;
    if (producer.valid() && graph_.op(producer).alias) {
      std::string text = op_text(producer);
      const auto outputs = graph_.outputs(producer);
      if (outputs.size() > 1) {
        text +=
            fmt::format("[{}]", std::find(outputs.begin(), outputs.end(), id) - outputs.begin());
      }
      return text;
    }
    std::string text(graph::dtype_name(graph_.tensor(id).dtype));
    text += "[";
    const auto shape = graph_.shape(id);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      text += (i ? "," : "") + graph::affine_text(shape[i]);
    }
    return text + "]";
  }

  const graph::ModelGraph& graph_;
  std::vector<TensorId> tensors_;
  bool batched_ = false;
};

}  // namespace

std::string form_of(const graph::ModelGraph& graph, OpId op) {
  return FormWriter(graph).op_text(op);
}

std::vector<DistinctOp> distinct_ops(const graph::ModelGraph& graph) {
  std::vector<DistinctOp> distinct;
  std::unordered_map<std::string, std::size_t> known;  // looked up, never walked
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    FormWriter writer(graph);
    std::string form = writer.op_text(op);
    const auto [place, added] = known.try_emplace(form, distinct.size());
    if (added) {
      bool batched = writer.batched();
      for (TensorId output : graph.outputs(op)) {
        batched |= output.valid() && graph.tensor(output).has_batch;
      }
      distinct.push_back({.form = std::move(form), .ops = {}, .batched = batched});
    }
    distinct[place->second].ops.push_back(op);
  }
  return distinct;
}

}  // namespace heterog::measure

// Calls the operators of a graph on tensors without memory.
#include "runtime/kernels/infer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/result_rules.h"
#include "tensors/torch_error.h"

namespace heterog::runtime {
namespace {

using graph::Value;

at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta));
}

// What creates a tensor creates it without memory too. A number in place of a tensor stays on the
// CPU, as operators take it beside tensors of any device: kernels that are written in Python, which
// a process of Python may have, are given its value.
void leave_host(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  const auto& formal = schema.arguments();
  for (std::size_t i = 0; i < formal.size(); ++i) {
    if (formal[i].name() == "device") stack[i] = at::Device(at::kMeta);
    if (formal[i].name() == "pin_memory") stack[i] = {};
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    const at::Tensor& tensor = stack[i].toTensor();
    if (tensor.is_meta() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) continue;
    stack[i] = without_memory(tensor.sizes(), tensor.scalar_type());
  }
}

// An op's operator, arguments and operands as words that no other call has.
class CallKey {
 public:
  using Words = std::vector<std::uint64_t>;
  CallKey(const graph::ModelGraph& graph, const IdVector<TensorId, at::Tensor>& values)
      : graph_(graph), values_(values) {}

  Words of(OpId op) {
    words_.clear();
    // Ops of a type share its facts, and those without a row of their own are told apart by name.
    add(graph_.type_name(op));
    words_.push_back(graph_.outputs(op).size());
    words_.push_back(graph_.args(op).size());
    for (const Value& value : graph_.args(op)) add(value);
    for (const auto& [key, value] : graph_.kwargs(op)) {
      add(std::string_view(key));
      add(value);
    }
    return words_;
  }

 private:
  void add(std::string_view text) {
    words_.push_back(text.size());
    for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
      words_.push_back(word);
    }
  }

  void add(const Value& value) {
    words_.push_back(static_cast<std::uint64_t>(value.kind));
    switch (value.kind) {
      case Value::Kind::kNone:
        return;
      case Value::Kind::kSymbol:
      case Value::Kind::kString:
        return add(std::string_view(value.text));
      case Value::Kind::kList:
        words_.push_back(value.items.size());
        for (const Value& item : value.items) add(item);
        return;
      case Value::Kind::kTensor:
        return add(values_[value.tensor]);
      default:
        words_.push_back(static_cast<std::uint64_t>(value.integer.a));
        words_.push_back(static_cast<std::uint64_t>(value.integer.c));
        words_.push_back(std::bit_cast<std::uint64_t>(value.number));
        words_.push_back(std::bit_cast<std::uint64_t>(value.offset));
    }
  }

  void add(const at::Tensor& tensor) {
    words_.push_back(static_cast<std::uint64_t>(tensor.scalar_type()));
    words_.push_back(static_cast<std::uint64_t>(tensor.dim()));
    for (std::int64_t size : tensor.sizes()) words_.push_back(static_cast<std::uint64_t>(size));
    for (std::int64_t step : tensor.strides()) words_.push_back(static_cast<std::uint64_t>(step));
  }

  const graph::ModelGraph& graph_;
  const IdVector<TensorId, at::Tensor>& values_;
  Words words_;
};

struct HashOfWords {
  std::size_t operator()(const CallKey::Words& words) const { return hash_words(words).first; }
};

// The results of an op, flat, of operands that are parallel to graph.inputs(op), all of them
// without memory. Nothing where only the call itself tells. Throws what the operator throws for
// operands that do not go together.
std::optional<std::vector<at::Tensor>> infer_results(const graph::ModelGraph& graph, OpId op,
                                                     std::span<const at::Tensor> operands,
                                                     std::int64_t batch) {
  const OperatorCall call(graph, op, {batch, batch}, {.device = at::kMeta});
  torch::jit::Stack stack = call.bind(operands);
  leave_host(call.schema(), stack);
  const std::string_view type = graph.type_name(op);
  const Operands named(call.schema(), stack);
  try {
    if (const ResultRule rule = result_rule(type)) {
      call.check(stack);
      return rule(named);
    }
    if (call.gives_a_list()) {
      // Each of them is an object in memory: asked before the call.
      const auto count = pieces(type, named);
      const auto outputs = static_cast<std::int64_t>(graph.outputs(op).size());
      VALIDATE(!count || *count == outputs, "it gives {} tensors, and {} outputs are declared",
               *count, outputs);
    }
    return call.call(std::move(stack));
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;  // it has no such kernel, or asks for a value
  } catch (const std::exception&) {
    if (call.sizes_results_by_values()) return std::nullopt;  // as Python's kernels say it
    throw;
  }
}

// One walk over a graph, at one batch.
class Walk {
 public:
  Walk(const graph::ModelGraph& graph, std::int64_t batch, const std::string& source)
      : graph_(graph),
        batch_(batch),
        source_(source),
        values_(graph.tensor_count()),
        key_(graph, values_) {}

  InferredOps run() {
    for (TensorId id : graph_.tensor_ids()) {
      if (!graph_.tensor(id).producer.valid()) values_[id] = declared(id);
    }
    InferredOps count;
    for (OpId op : graph_.op_ids()) {
      const Results& results = results_of(op);
      take(op, results);
      if (results) {
        ++count.inferred;
      } else {
        count.left.emplace_back(graph_.type_name(op));
      }
    }
    count.asked = known_.size();
    return count;
  }

 private:
  using Results = std::optional<std::vector<at::Tensor>>;

  at::Tensor declared(TensorId id) const {
    return without_memory(sizes_at(graph_.shape(id), batch_),
                          scalar_type(graph_.tensor(id).dtype, Floats::kOwn));
  }

  const Results& results_of(OpId op) {
    const auto [at, is_new] = known_.try_emplace(key_.of(op));
    if (is_new) at->second = infer(op);
    return at->second;
  }

  Results infer(OpId op) const {
    std::vector<at::Tensor> operands;
    for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
    try {
      return infer_results(graph_, op, operands, batch_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      refuse(op, operands, error.what());
    } catch (const std::exception& error) {
      refuse(op, operands, tensors::one_line(error));
    }
  }

  // Without a dtype PyTorch draws in its default type, which is the exporter's and not this
  // process's.
  bool draws_floats_of_any_type(OpId op) const {
    const auto& named = graph_.kwargs(op);
    return graph_.facts(op).random == operators::Random::kCounter && graph_.inputs(op).empty() &&
           std::none_of(named.begin(), named.end(), [](const auto& argument) {
             return argument.first == "dtype" && argument.second.kind != Value::Kind::kNone;
           });
  }

  [[noreturn]] void refuse(OpId op, std::span<const at::Tensor> operands,
                           const std::string& why) const {
    std::string types;
    for (const at::Tensor& operand : operands.first(std::min<std::size_t>(operands.size(), 6))) {
      types += (types.empty() ? "" : ", ") + type_text(operand);
    }
    if (operands.size() > 6) types += ", …";
    fail_input("{}: does not take {} at batch {}: {}", where(op), types, batch_, why);
  }

  void take(OpId op, const Results& results) {
    const auto outputs = graph_.outputs(op);
    if (results && results->size() != outputs.size()) check_count(op, results->size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].valid()) continue;
      values_[outputs[i]] = declared(outputs[i]);
      if (!results) continue;
      at::Tensor result = (*results)[i];
      if (result.defined() && draws_floats_of_any_type(op) && result.is_floating_point() &&
          values_[outputs[i]].is_floating_point()) {
        result = without_memory(result.sizes(), values_[outputs[i]].scalar_type());
      }
      compare(op, outputs[i], result);
      values_[outputs[i]] = result;
    }
  }

  // A list of another length would leave a piece of the operand out, or ask for one that is not.
  void check_count(OpId op, std::size_t given) const {
    const std::size_t named = graph_.outputs(op).size();
    VALIDATE(named <= given && !OperatorCall(graph_, op, {batch_, batch_}, {}).gives_a_list(),
             "{}: {} outputs are declared, the operator gives {} at batch {}", where(op), named,
             given, batch_);
  }

  void compare(OpId op, TensorId id, const at::Tensor& result) const {
    const graph::Tensor& tensor = graph_.tensor(id);
    const auto shape = graph_.shape(id);
    const bool same =
        result.defined() && result.scalar_type() == scalar_type(tensor.dtype, Floats::kOwn) &&
        std::equal(
            shape.begin(), shape.end(), result.sizes().begin(), result.sizes().end(),
            [&](const graph::Affine& size, std::int64_t is) { return size.at(batch_) == is; });
    if (same) return;
    std::string text;
    for (const graph::Affine& size : shape) {
      text += (text.empty() ? "" : ", ") + graph::affine_text(size);
    }
    fail_input("{}: result '{}': {}[{}] is declared, the operator gives {} at batch {}", where(op),
               printable(tensor.name, 60), graph::dtype_name(tensor.dtype), text, type_text(result),
               batch_);
  }

  std::string where(OpId op) const {
    return fmt::format("{}: op '{}' ({})", printable(source_, 400),
                       printable(graph_.op(op).name, 60), graph_.type_name(op));
  }

  const graph::ModelGraph& graph_;
  std::int64_t batch_;
  const std::string& source_;
  IdVector<TensorId, at::Tensor> values_;
  CallKey key_;
  std::unordered_map<CallKey::Words, Results, HashOfWords> known_;
};

}  // namespace

InferredOps check_results(const graph::ModelGraph& graph, std::span<const std::int64_t> batches,
                          const std::string& source) {
  const c10::InferenceMode no_gradients;
  InferredOps sum;
  for (std::int64_t batch : batches) {
    const InferredOps count = Walk(graph, batch, source).run();
    sum.inferred += count.inferred;
    sum.left.insert(sum.left.end(), count.left.begin(), count.left.end());
    sum.asked += count.asked;
  }
  return sum;
}

std::vector<std::int64_t> checked_batches(std::int64_t batch, std::int64_t smallest) {
  if (smallest < batch) return {batch, smallest};
  return {smallest, std::min(smallest + 1, graph::kMaxSamples)};
}

}  // namespace heterog::runtime

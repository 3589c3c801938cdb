// Two chains have one form if their ops, written down with what each operand is, read the same.
#include "graph/update_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "operators/facts.h"
#include "operators/list_forms.h"

namespace heterog::graph {
namespace {

using operators::ListKind;

TensorId without_views(const ModelGraph& graph, TensorId id) {
  for (OpId op = graph.tensor(id).producer; op.valid() && graph.op(op).alias;
       op = graph.tensor(id).producer) {
    id = graph.inputs(op)[0];
  }
  return id;
}

// What an op computes with which numbers, and which of its operands belong to its own chain.
class FormText {
 public:
  FormText(const ModelGraph& graph, const UpdateChain& chain) : graph_(graph) {
    for (OpId op : chain.ops) {
      for (TensorId out : graph.outputs(op)) {
        if (out.valid()) own_[out] = own_.size();
      }
    }
    for (OpId op : chain.ops) add(op, chain.parameter);
  }
  std::string text() && { return std::move(text_); }

 private:
  void add(OpId op, TensorId parameter) {
    text_ += graph_.type_name(op);
    for (const Value& value : graph_.args(op)) add(value, parameter);
    for (const auto& [key, value] : graph_.kwargs(op)) {
      text_ += key;
      add(value, parameter);
    }
    text_ += '\n';
  }

  void add(const Value& value, TensorId parameter) {
    text_ += fmt::format(" {}", static_cast<int>(value.kind));
    switch (value.kind) {
      case Value::Kind::kTensor:
        return add(value.tensor, parameter);
      case Value::Kind::kList:
        for (const Value& item : value.items) add(item, parameter);
        text_ += ';';
        return;
      default:
        text_ += fmt::format("({},{},{},{},{})", value.integer.a, value.integer.c, value.number,
                             value.offset, value.text);
    }
  }

  void add(TensorId id, TensorId parameter) {
    const Tensor& tensor = graph_.tensor(id);
    const TensorId base = without_views(graph_, id);
    if (const auto own = own_.find(id); own != own_.end()) {
      text_ += fmt::format(" own{}", own->second);
    } else if (id == parameter) {
      text_ += " parameter";
    } else if (tensor.of == parameter) {
      text_ += fmt::format(" {}", static_cast<int>(tensor.role));
    } else if (graph_.shape(id).empty() && graph_.shape(base).empty() && !own_.contains(base)) {
      text_ += fmt::format(" %{}", base.value());  // a number that several share
    } else {
      text_ += " outside";  // the gradient, once it was scaled say
    }
    text_ += fmt::format(":{}", static_cast<int>(tensor.dtype));
  }

  const ModelGraph& graph_;
  std::map<TensorId, std::size_t> own_;
  std::string text_;
};

// Finds the ops of a chain whose results are the same in all chains of its form.
class SharedNumbers {
 public:
  SharedNumbers(const ModelGraph& graph, const UpdateChain& chain)
      : graph_(graph), parameter_(chain.parameter) {
    for (OpId op : chain.ops) {
      for (TensorId out : graph.outputs(op)) {
        if (out.valid()) shared_[out] = false;
      }
    }
  }

  // To be asked of one op after another.
  bool are_all_that_is_read_by(OpId op) {
    const auto inputs = graph_.inputs(op);
    const auto outputs = graph_.outputs(op);
    const bool draws = graph_.facts(op).random != operators::Random::kNone;
    const bool stays = std::ranges::any_of(
        outputs, [&](TensorId out) { return out.valid() && graph_.tensor(out).replaces.valid(); });
    const bool once = !inputs.empty() && !draws && !stays &&
                      std::ranges::all_of(inputs, [&](TensorId in) { return shared(in); });
    for (TensorId out : outputs) {
      if (out.valid()) shared_[out] = once;
    }
    return once;
  }

 private:
  bool shared(TensorId id) const {
    const TensorId base = without_views(graph_, id);
    if (const auto own = shared_.find(base); own != shared_.end()) return own->second;
    return graph_.shape(base).empty() && base != parameter_ && graph_.tensor(base).of != parameter_;
  }

  const ModelGraph& graph_;
  TensorId parameter_;
  std::map<TensorId, bool> shared_;  // what the chain makes
};

// Whether the operator has a form over lists that takes these operands.
bool takes_lists(const ModelGraph& graph, OpId op) {
  if (graph.facts(op).multi_tensor) return true;
  const operators::ListForm& form = operators::list_form(graph.type_name(op));
  const auto args = graph.args(op);
  const auto outputs = graph.outputs(op);
  if (form.kind == ListKind::kNone || args.empty() || outputs.size() != 1 || !outputs[0].valid() ||
      args[0].kind != Value::Kind::kTensor) {
    return false;
  }
  const auto same_shape = [&](TensorId id) {
    return std::ranges::equal(graph.shape(id), graph.shape(outputs[0]));
  };
  const auto same = [&](TensorId id) {
    return same_shape(id) && graph.tensor(id).dtype == graph.tensor(outputs[0]).dtype;
  };
  const auto inputs = graph.inputs(op);
  if (!same(inputs[0])) return false;
  switch (form.kind) {
    case ListKind::kBinary:
      if (args.size() < 2) return false;
      if (inputs.size() == 1) return graph.kwargs(op).empty();  // a number, taken once
      return same(inputs[1]) || (form.one_tensor && graph.shape(inputs[1]).empty());
    case ListKind::kProduct:
      return inputs.size() == 3 && same(inputs[1]) &&
             (same(inputs[2]) ||
              (form.name == "_foreach_addcmul" && graph.shape(inputs[2]).empty()));
    case ListKind::kLerp:
      return inputs.size() == 2 && same(inputs[1]);
    default:
      return inputs.size() == 1;
  }
}

}  // namespace

void find_forms(const ModelGraph& graph, std::vector<UpdateChain>& chains) {
  std::map<std::string, std::uint32_t> known;
  for (UpdateChain& chain : chains) {
    const auto next = static_cast<std::uint32_t>(known.size());
    chain.form = known.try_emplace(FormText(graph, chain).text(), next).first->second;
    SharedNumbers numbers(graph, chain);
    for (OpId op : chain.ops) {
      const bool once = numbers.are_all_that_is_read_by(op);
      chain.calls.push_back(once                     ? SharedCall::kOnce
                            : takes_lists(graph, op) ? SharedCall::kLists
                                                     : SharedCall::kApart);
    }
  }
}

}  // namespace heterog::graph

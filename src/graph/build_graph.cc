// Checks a collected graph as a whole and derives what it does not say: producers, consumers,
// aliases, roots, the hash.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <unordered_set>

#include "base/hash.h"
#include "base/text.h"
#include "graph/model_graph.h"

namespace heterog::graph {
namespace {

// All tensors together at the largest batch, in bytes. cost::make_problem sees to it that sums over
// the devices of a cluster fit as well, at the batch that is asked for.
constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 58;

// "namespace.operator.overload", each a C identifier.
bool is_type_name(std::string_view name) {
  int parts = 0;
  bool at_start = true;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (c == '.') {
      if (at_start) return false;
      at_start = true;
    } else {
      if (!letter && (at_start || c < '0' || c > '9')) return false;
      parts += at_start;
      at_start = false;
    }
  }
  return parts == 3 && !at_start;
}

bool given(TensorRole role) {  // exists before the step
  return role == TensorRole::kInput || role == TensorRole::kParameter ||
         role == TensorRole::kBuffer || role == TensorRole::kOptimizerState;
}

void collect_tensors(const Value& value, std::vector<TensorId>& into) {
  if (value.kind == Value::Kind::kTensor) into.push_back(value.tensor);
  for (const Value& item : value.items) collect_tensors(item, into);
}

void hash_value(const Value& value, Hasher& hasher) {
  hasher.add(static_cast<std::uint64_t>(value.kind));
  switch (value.kind) {
    case Value::Kind::kNone:
      break;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kSize:
      hasher.add(static_cast<std::uint64_t>(value.integer.a));
      hasher.add(static_cast<std::uint64_t>(value.integer.c));
      break;
    case Value::Kind::kFloat:
    case Value::Kind::kScalar:
    case Value::Kind::kReciprocal:
      hasher.add(std::bit_cast<std::uint64_t>(value.number));
      hasher.add(std::bit_cast<std::uint64_t>(value.offset));
      hasher.add(static_cast<std::uint64_t>(value.integer.a));
      hasher.add(static_cast<std::uint64_t>(value.integer.c));
      break;
    case Value::Kind::kSymbol:
    case Value::Kind::kString:
      hasher.add(value.text);
      break;
    case Value::Kind::kTensor:
      hasher.add(value.tensor.value());
      break;
    case Value::Kind::kList:
      hasher.add(value.items.size());
      for (const Value& item : value.items) hash_value(item, hasher);
      break;
  }
}

std::uint64_t hash_of(const ModelGraph& graph) {
  Hasher hasher;
  hasher.add(graph.name());
  hasher.add(graph.tensor_count());
  for (TensorId id : graph.tensor_ids()) {
    const Tensor& tensor = graph.tensor(id);
    hasher.add(tensor.name);
    hasher.add(static_cast<std::uint64_t>(tensor.dtype));
    hasher.add(static_cast<std::uint64_t>(tensor.role));
    hasher.add(tensor.of.value());
    hasher.add(tensor.replaces.value());
    hasher.add(graph.shape(id).size());
    for (const Affine& dim : graph.shape(id)) {
      hasher.add(static_cast<std::uint64_t>(dim.a));
      hasher.add(static_cast<std::uint64_t>(dim.c));
    }
  }
  hasher.add(graph.op_count());
  for (OpId id : graph.op_ids()) {
    const Op& op = graph.op(id);
    hasher.add(op.name);
    hasher.add(graph.type_name(id));
    hasher.add(static_cast<std::uint64_t>(op.phase));
    hasher.add(op.forward.value());
    hasher.add(graph.scope(id));
    hasher.add(graph.args(id).size());
    for (const Value& value : graph.args(id)) hash_value(value, hasher);
    hasher.add(graph.kwargs(id).size());
    for (const auto& [key, value] : graph.kwargs(id)) {
      hasher.add(key);
      hash_value(value, hasher);
    }
    hasher.add(graph.outputs(id).size());
    for (TensorId output : graph.outputs(id)) hasher.add(output.value());
  }
  hasher.add(graph.loss().value());
  if (graph.tf32() != Tf32{}) {
    hasher.add("tf32");
    hasher.add((graph.tf32().products ? 2 : 0) + (graph.tf32().convolutions ? 1 : 0));
  }
  return hasher.value();
}

// Checks one graph; the messages begin with the file.
class Checker {
 public:
  Checker(const ModelGraph& graph, std::string_view source)
      : graph_(graph), source_(printable(source, 400)) {}

  void check_names() const {
    VALIDATE(!graph_.name().empty(), "{}: name: expected a name, found an empty string", source_);
    std::unordered_set<std::string_view> seen;
    for (TensorId id : graph_.tensor_ids()) {
      const std::string& name = graph_.tensor(id).name;
      VALIDATE(!name.empty(), "{}: {}.name: expected a name, found an empty string", source_,
               label(id));
      VALIDATE(seen.insert(name).second, "{}: {}.name: another tensor has the same name", source_,
               label(id));
    }
    seen.clear();
    for (OpId id : graph_.op_ids()) {
      const std::string& name = graph_.op(id).name;
      VALIDATE(!name.empty(), "{}: {}.name: expected a name, found an empty string", source_,
               label(id));
      VALIDATE(seen.insert(name).second, "{}: {}.name: another op has the same name", source_,
               label(id));
      VALIDATE(is_type_name(graph_.type_name(id)),
               "{}: {}.op: unknown operator \"{}\", expected namespace.operator.overload, "
               "as aten.mm.default",
               source_, label(id), printable(graph_.type_name(id)));
    }
  }

  void check_sizes() const {
    __extension__ using Wide = __int128;
    Wide total = 0;
    for (TensorId id : graph_.tensor_ids()) {
      const Tensor& tensor = graph_.tensor(id);
      VALIDATE(graph_.shape(id).size() <= kMaxRank,
               "{}: {}.shape: {} dimensions, expected at most {}", source_, label(id),
               graph_.shape(id).size(), kMaxRank);
      Wide elements = 1;  // a dimension of 0 counts as 1, so that no factor hides an overflow
      for (const Affine& dim : graph_.shape(id)) {
        VALIDATE(std::abs(dim.a) <= kMaxCoefficient && std::abs(dim.c) <= kMaxCoefficient,
                 "{}: {}.shape: the size {} is out of range, expected at most {}", source_,
                 label(id), affine_text(dim), kMaxCoefficient);
        VALIDATE(dim.a >= 0 && dim.at(1) >= 0,
                 "{}: {}.shape: the size {} is negative for some batch, expected 0 or more for "
                 "every B >= 1",
                 source_, label(id), affine_text(dim));
        elements *= std::max<std::int64_t>(1, dim.at(kMaxSamples));
        VALIDATE(elements * element_bytes(tensor.dtype) <= kMaxTotalBytes,
                 "{}: {}.shape: the tensor is too large: more than {} bytes at batch {}", source_,
                 label(id), kMaxTotalBytes, kMaxSamples);
      }
      total += elements * element_bytes(tensor.dtype);
      VALIDATE(total <= kMaxTotalBytes,
               "{}: tensors: too large together: more than {} bytes at batch {}", source_,
               kMaxTotalBytes, kMaxSamples);
      const bool kept = given(tensor.role) && tensor.role != TensorRole::kInput;
      VALIDATE(!kept || !tensor.has_batch,
               "{}: {}.shape: the size of a {} depends on the batch, expected constants", source_,
               label(id), role_name(tensor.role));
    }
  }

  void check_roles() const {
    const auto count = graph_.tensor_count();
    IdVector<TensorId, TensorId> next(count);
    IdVector<TensorId, TensorId> gradient(count);
    for (TensorId id : graph_.tensor_ids()) {
      const Tensor& tensor = graph_.tensor(id);
      const bool may_be_of =
          tensor.role == TensorRole::kGradient || tensor.role == TensorRole::kOptimizerState;
      VALIDATE(!tensor.of.valid() || may_be_of,
               "{}: {}.of: only gradients and optimizer state belong to a parameter, not an {}",
               source_, label(id), role_name(tensor.role));
      VALIDATE(tensor.role != TensorRole::kGradient || tensor.of.valid(),
               "{}: {}.of: missing, expected the parameter that this is the gradient of", source_,
               label(id));
      if (tensor.of.valid()) {
        VALIDATE(
            tensor.of.value() < count && graph_.tensor(tensor.of).role == TensorRole::kParameter,
            "{}: {}.of: tensor {} is not a parameter", source_, label(id), tensor.of.value());
        if (tensor.role == TensorRole::kGradient) {
          VALIDATE(!gradient[tensor.of].valid(),
                   "{}: {}.of: parameter {} already has a gradient, tensor {}", source_, label(id),
                   tensor.of.value(), gradient[tensor.of].value());
          gradient[tensor.of] = id;
        }
      }
      if (tensor.replaces.valid()) check_replaces(id, next);
    }
    if (graph_.loss().valid()) {
      VALIDATE(graph_.loss().value() < count, "{}: loss: no tensor {}, there are {}", source_,
               graph_.loss().value(), count);
      VALIDATE(graph_.tensor(graph_.loss()).role == TensorRole::kOutput,
               "{}: loss: {} is an {}, expected an output", source_, label(graph_.loss()),
               role_name(graph_.tensor(graph_.loss()).role));
    }
  }

  // Needs producers and the flat lists of inputs.
  void check_order() const {
    for (TensorId id : graph_.tensor_ids()) {
      const Tensor& tensor = graph_.tensor(id);
      VALIDATE(!given(tensor.role) || !tensor.producer.valid(),
               "{}: {}: an {} exists before the step, but {} makes it", source_, label(id),
               role_name(tensor.role), label(tensor.producer));
      VALIDATE(given(tensor.role) || tensor.producer.valid(), "{}: {}: no op makes this {}",
               source_, label(id), role_name(tensor.role));
    }
    for (OpId id : graph_.op_ids()) {
      const Op& op = graph_.op(id);
      for (TensorId input : graph_.inputs(id)) {
        const OpId producer = graph_.tensor(input).producer;
        VALIDATE(!producer.valid() || producer < id,
                 "{}: {}.args: reads {} before {} makes it, expected topological order", source_,
                 label(id), label(input), label(producer));
      }
      if (!op.forward.valid()) continue;
      VALIDATE(op.phase == Phase::kBackward,
               "{}: {}.forward: only backward ops have one, not {} ops", source_, label(id),
               phase_name(op.phase));
      VALIDATE(op.forward < id && graph_.op(op.forward).phase == Phase::kForward,
               "{}: {}.forward: op {} is no earlier forward op", source_, label(id),
               op.forward.value());
    }
  }

  // Planning takes a step apart by its phases: gradients are aggregated between the backward ops
  // that make them and the update ops that read them, and parameters change after both.
  void check_phases() const {
    for (OpId id : graph_.op_ids()) {
      const Phase phase = graph_.op(id).phase;
      for (TensorId input : graph_.inputs(id)) {
        const Tensor& tensor = graph_.tensor(input);
        const Phase made =
            tensor.producer.valid() ? graph_.op(tensor.producer).phase : Phase::kForward;
        VALIDATE(made <= phase, "{}: {}.phase: a {} op reads {}, which the {} op {} makes", source_,
                 label(id), phase_name(phase), label(input), phase_name(made),
                 label(tensor.producer));
        VALIDATE(tensor.role != TensorRole::kOptimizerState || phase == Phase::kUpdate,
                 "{}: {}.phase: a {} op reads {}, which is optimizer state: expected update",
                 source_, label(id), phase_name(phase), label(input));
      }
    }
    for (TensorId id : graph_.tensor_ids()) {
      const Tensor& tensor = graph_.tensor(id);
      if (!tensor.producer.valid()) continue;
      const Phase phase = graph_.op(tensor.producer).phase;
      VALIDATE(tensor.role != TensorRole::kGradient || phase != Phase::kUpdate,
               "{}: {}.phase: an update op makes the gradient {}, expected backward", source_,
               label(tensor.producer), label(id));
      VALIDATE(id != graph_.loss() || phase == Phase::kForward,
               "{}: {}.phase: a {} op makes the loss, expected forward", source_,
               label(tensor.producer), phase_name(phase));
      if (!tensor.replaces.valid()) continue;
      const TensorRole replaced = graph_.tensor(tensor.replaces).role;
      VALIDATE(replaced == TensorRole::kBuffer || phase == Phase::kUpdate,
               "{}: {}.phase: a {} op makes {}, the next value of a {}: expected update", source_,
               label(tensor.producer), phase_name(phase), label(id), role_name(replaced));
    }
  }

  std::string label(TensorId id) const {
    return fmt::format("tensors[{}] ({})", id.value(), printable(graph_.tensor(id).name, 60));
  }
  std::string label(OpId id) const {
    return fmt::format("ops[{}] ({})", id.value(), printable(graph_.op(id).name, 60));
  }
  const std::string& source() const { return source_; }

 private:
  void check_replaces(TensorId id, IdVector<TensorId, TensorId>& next) const {
    const Tensor& tensor = graph_.tensor(id);
    const TensorId old = tensor.replaces;
    VALIDATE(tensor.role == TensorRole::kOutput,
             "{}: {}.replaces: only outputs replace a tensor, not an {}", source_, label(id),
             role_name(tensor.role));
    VALIDATE(old.value() < graph_.tensor_count() && given(graph_.tensor(old).role) &&
                 graph_.tensor(old).role != TensorRole::kInput,
             "{}: {}.replaces: tensor {} is no parameter, buffer or optimizer state", source_,
             label(id), old.value());
    VALIDATE(!next[old].valid(), "{}: {}.replaces: tensor {} is already replaced by {}", source_,
             label(id), old.value(), label(next[old]));
    next[old] = id;
    VALIDATE(std::ranges::equal(graph_.shape(old), graph_.shape(id)) &&
                 graph_.tensor(old).dtype == tensor.dtype,
             "{}: {}.replaces: {} has another shape or dtype", source_, label(id), label(old));
  }

  const ModelGraph& graph_;
  std::string source_;
};

}  // namespace

ModelGraph GraphBuilder::build(const std::string& source) && {
  ModelGraph& graph = graph_;
  const Checker checker(graph, source);
  const std::size_t tensors = graph.tensor_count();
  checker.check_names();
  checker.check_sizes();
  checker.check_roles();

  for (OpId id : graph.op_ids()) {
    bool any = false;
    for (TensorId output : graph.outputs(id)) {
      if (!output.valid()) continue;
      any = true;
      VALIDATE(output.value() < tensors, "{}: {}.outputs: no tensor {}, there are {}",
               checker.source(), checker.label(id), output.value(), tensors);
      OpId& producer = graph.tensors_[output].producer;
      VALIDATE(!producer.valid(), "{}: {}.outputs: {} is already made by {}", checker.source(),
               checker.label(id), checker.label(output), checker.label(producer));
      producer = id;
    }
    VALIDATE(any, "{}: {}.outputs: expected at least one tensor", checker.source(),
             checker.label(id));
  }

  std::vector<TensorId> inputs;
  std::vector<std::pair<TensorId, OpId>> reads;
  IdVector<TensorId, OpId> last_reader(tensors);
  for (OpId id : graph.op_ids()) {
    inputs.clear();
    for (const Value& value : graph.args(id)) collect_tensors(value, inputs);
    for (const auto& [key, value] : graph.kwargs(id)) collect_tensors(value, inputs);
    for (TensorId input : inputs) {
      VALIDATE(input.value() < tensors, "{}: {}.args: no tensor {}, there are {}", checker.source(),
               checker.label(id), input.value(), tensors);
      if (last_reader[input] != id) reads.emplace_back(input, id);
      last_reader[input] = id;
    }
    graph.inputs_.push_row(inputs);
  }
  graph.consumers_ = Csr<TensorId, OpId>::from_pairs(tensors, reads);
  checker.check_order();
  checker.check_phases();

  graph.roots_.resize(tensors);
  for (TensorId id : graph.tensor_ids()) graph.roots_[id] = id;
  for (OpId id : graph.op_ids()) {
    if (!graph.facts(id).alias) continue;
    VALIDATE(!graph.inputs(id).empty(), "{}: {}.args: {} needs a tensor", checker.source(),
             checker.label(id), graph.type_name(id));
    graph.ops_[id].alias = true;
    const TensorId root = graph.roots_[graph.inputs(id)[0]];
    for (TensorId output : graph.outputs(id)) {
      if (output.valid()) graph.roots_[output] = root;
    }
  }

  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role == TensorRole::kParameter) graph.parameters_.push_back(id);
  }
  graph.hash_ = hash_of(graph);
  return std::move(graph_);
}

}  // namespace heterog::graph

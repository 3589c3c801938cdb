// One training step of a model as an immutable graph of ATen operators.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/csr.h"
#include "base/ids.h"
#include "graph/types.h"
#include "graph/value.h"
#include "operators/facts.h"

namespace heterog::graph {

// Between which values, both included, the elements of a tensor lie.
struct ValueRange {
  double low = 0;
  double high = 0;
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

struct Tensor {
  std::string name;
  DType dtype = DType::kFloat32;
  TensorRole role = TensorRole::kActivation;
  TensorId of;             // gradient, optimizer state: its parameter (invalid: none)
  TensorId replaces;       // output: the tensor whose next value it is (invalid: none)
  OpId producer;           // invalid for inputs, parameters, buffers, optimizer state
  bool has_batch = false;  // some dimension depends on B
  // Its channels (dimension 1 of 4 or 5) lie next to one another in memory: NHWC, NDHWC.
  bool channels_last = false;
  // Inputs and buffers, as far as was seen when the step was traced: what random values keep to.
  // Plans do not depend on it, nor does the hash.
  std::optional<ValueRange> values;
};

struct Op {
  std::string name;
  OpTypeId type;
  Phase phase = Phase::kForward;
  OpId forward;             // backward ops: the forward op it differentiates (invalid: unknown)
  std::uint32_t scope = 0;  // index into scopes(); 0 is ""
  bool alias = false;       // costs nothing, owns no memory: a view of its first tensor argument
};

// Which products of operands in float32 may be computed in TF32 (10 digits behind the point) on
// devices that have it. As PyTorch, unless told otherwise.
struct Tf32 {
  bool products = false;
  bool convolutions = true;
  friend bool operator==(const Tf32&, const Tf32&) = default;
};

// Ops are in topological order. Built once, by GraphBuilder; never changed.
class ModelGraph {
 public:
  const std::string& name() const { return name_; }
  std::size_t op_count() const { return ops_.size(); }
  std::size_t tensor_count() const { return tensors_.size(); }
  IdRange<OpId> op_ids() const { return id_range<OpId>(op_count()); }
  IdRange<TensorId> tensor_ids() const { return id_range<TensorId>(tensor_count()); }

  const Op& op(OpId id) const { return ops_[id]; }
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  // Tensor arguments in order of appearance (lists flattened, repeats kept).
  std::span<const TensorId> inputs(OpId id) const { return inputs_[id]; }
  // One a result of the operator; invalid where the result is undefined.
  std::span<const TensorId> outputs(OpId id) const { return outputs_[id]; }
  // Ops that read the tensor, ascending, each once.
  std::span<const OpId> consumers(TensorId id) const { return consumers_[id]; }
  std::span<const Affine> shape(TensorId id) const { return shapes_[id]; }
  std::span<const Value> args(OpId id) const { return args_[id]; }
  std::span<const std::pair<std::string, Value>> kwargs(OpId id) const { return kwargs_[id]; }
  std::string_view type_name(OpTypeId id) const { return type_names_[id]; }  // "aten.mm.default"
  std::string_view type_name(OpId id) const { return type_names_[ops_[id].type]; }
  // Facts about the operator.
  const operators::Facts& facts(OpTypeId id) const { return *facts_[id]; }
  const operators::Facts& facts(OpId id) const { return *facts_[ops_[id].type]; }
  std::size_t type_count() const { return type_names_.size(); }
  std::string_view scope(OpId id) const { return scopes_[ops_[id].scope]; }

  // The tensor that owns the memory: itself, or the base that a chain of aliases views.
  TensorId root(TensorId id) const { return roots_[id]; }
  // 1 ≤ samples ≤ kMaxSamples.
  std::int64_t elements(TensorId id, std::int64_t samples) const {
    EXPECT(samples >= 0 && samples <= kMaxSamples);
    const Elements& size = elements_[id];
    return size.is_affine ? size.affine.at(samples) : product_of_shape(id, samples);
  }
  Bytes bytes(TensorId id, std::int64_t samples) const {
    return elements(id, samples) * element_bytes(tensors_[id].dtype);
  }
  TensorId loss() const { return loss_; }
  const Tf32& tf32() const { return tf32_; }
  // Sizes of the whole: parameters() elements, and ids by role in id order.
  std::span<const TensorId> parameters() const { return parameters_; }
  std::int64_t parameter_elements() const;
  // Depends on everything that a plan depends on; stored in plans and profiles.
  std::uint64_t hash() const { return hash_; }

 private:
  friend class GraphBuilder;
  std::int64_t product_of_shape(TensorId id, std::int64_t samples) const;
  void add_shape(std::span<const Affine> shape);

  // The number of elements, where at most one dimension depends on B.
  struct Elements {
    bool is_affine = false;
    Affine affine;
  };

  std::string name_;
  Tf32 tf32_;
  IdVector<TensorId, Tensor> tensors_;
  IdVector<TensorId, Elements> elements_;
  IdVector<OpId, Op> ops_;
  Csr<OpId, TensorId> inputs_;
  Csr<OpId, TensorId> outputs_;
  Csr<TensorId, OpId> consumers_;
  Csr<TensorId, Affine> shapes_;
  Csr<OpId, Value> args_;
  Csr<OpId, std::pair<std::string, Value>> kwargs_;
  IdVector<OpTypeId, std::string> type_names_;
  IdVector<OpTypeId, const operators::Facts*> facts_;  // rows of a table that never changes
  IdVector<TensorId, TensorId> roots_;
  std::vector<std::string> scopes_;
  std::vector<TensorId> parameters_;
  TensorId loss_;
  std::uint64_t hash_ = 0;
};

// Collects tensors and ops, then checks the whole and freezes it. Used by importers and tests.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);

  struct TensorSpec {
    std::string name;
    TensorRole role = TensorRole::kActivation;
    DType dtype = DType::kFloat32;
    std::vector<Affine> shape;
    TensorId of = {};
    TensorId replaces = {};
    bool channels_last = false;
    std::optional<ValueRange> values = {};
  };
  struct OpSpec {
    std::string name;
    std::string type;  // "aten.mm.default"
    Phase phase = Phase::kForward;
    std::vector<Value> args;
    std::vector<TensorId> outputs;
    OpId forward = {};
    std::string scope = {};
    std::vector<std::pair<std::string, Value>> kwargs = {};
  };
  TensorId add_tensor(TensorSpec spec);
  OpId add_op(OpSpec spec);
  void set_loss(TensorId loss) { graph_.loss_ = loss; }
  void set_tf32(const Tf32& tf32) { graph_.tf32_ = tf32; }

  // Throws an input error (prefixed by `source`, a file name) on: an op that reads a tensor not yet
  // produced, a tensor produced twice, an id out of range, a size that is negative at B ≥ 1 or
  // overflows, duplicate names, a role that does not fit (a gradient of no parameter, …), a phase
  // that reads or makes what belongs to another. Messages number ops and tensors in the order in
  // which they were added, as in a file.
  ModelGraph build(const std::string& source) &&;

 private:
  ModelGraph graph_;
  std::unordered_map<std::string, OpTypeId> types_;  // looked up, never walked
  std::unordered_map<std::string, std::uint32_t> scopes_;
};

// Argument makers for builders and tests.
Value tensor_value(TensorId id);
Value int_value(std::int64_t value);
Value float_value(double value);
Value size_value(std::int64_t a, std::int64_t c);
Value list_value(std::vector<Value> items);

}  // namespace heterog::graph

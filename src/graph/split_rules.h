// A split rule of one ATen operator: its arguments and its answer. The tables of rules have a file
// for each family.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/model_graph.h"
#include "graph/split.h"

namespace heterog::graph {

// A tensor operand of the op at hand. `rule` is how a slice may see it: what a whole op made is
// kConcat of its batch dimension or kSame here, never kWhole.
struct Operand {
  TensorId tensor;
  SplitRule rule;
  std::span<const Affine> shape;
  // Left empty, it follows from `rule`: kSlice, kSame, kPartial or kLocal.
  std::optional<OperandUse> use;

  bool sliced() const { return rule.kind == SplitKind::kConcat; }
  // Row numbers of the slice: each element is its place along `rule.dim`, counted from 0.
  bool rows() const;
  bool same() const { return rule.kind == SplitKind::kSame; }
  bool local() const { return rule.kind == SplitKind::kLocal; }
  bool partial() const { return rule.kind == SplitKind::kSum || rule.kind == SplitKind::kMean; }
};

// One op under analysis. Reused from op to op, so that the walk does not allocate.
class RuleContext {
 public:
  explicit RuleContext(const ModelGraph& graph) : graph_(&graph) {}
  // Points it at `op`; the caller fills in the operands' rules.
  void start(OpId op, std::uint8_t trait);

  const ModelGraph& graph() const { return *graph_; }
  OpId op() const { return op_; }
  std::uint8_t trait() const { return trait_; }

  // Parallel to graph.inputs(op).
  std::span<Operand> operands() { return operands_; }
  // The positional argument `index`: null if it is absent, None or no tensor.
  Operand* operand(std::size_t index);
  // The tensors of the positional argument `index`, a list; None entries are left out.
  std::span<Operand> operand_list(std::size_t index);

  // An argument by place or by keyword; null if it is absent or None.
  const Value* argument(std::size_t index, std::string_view name) const;
  // Whole numbers that do not depend on the batch; none if the argument is absent. One of any other
  // form makes the arguments unusual, whatever the rule goes on to say.
  std::optional<std::int64_t> integer(std::size_t index, std::string_view name);
  bool flag(std::size_t index, std::string_view name);  // absent: false
  // The same of a list; a number alone is a list of one. Valid until the next call.
  std::optional<std::span<const std::int64_t>> integers(std::size_t index, std::string_view name);
  bool unusual() const { return unusual_; }

  // Said of a positional argument that depends on the batch: the rule has seen to it that a slice's
  // own count gives what belongs to the slice. Any other such argument is refused.
  void follows(std::size_t index) { followed_ |= std::uint64_t{1} << index; }
  bool followed(std::size_t index) const { return index < 64 && (followed_ >> index & 1) != 0; }

  std::size_t output_count() const { return outputs_.size(); }
  bool has_output(std::size_t index) const;
  std::span<const Affine> output_shape(std::size_t index) const;
  void set_output(std::size_t index, SplitRule rule);  // absent outputs are let be
  void set_outputs(SplitRule rule);                    // all of them
  std::span<const SplitRule> output_rules() const { return outputs_; }

 private:
  const ModelGraph* graph_;
  OpId op_;
  std::uint8_t trait_ = 0;
  std::vector<Operand> operands_;
  std::vector<std::uint32_t> first_operand_;  // of each positional argument
  std::vector<SplitRule> outputs_;
  std::vector<std::int64_t> integers_;
  std::uint64_t followed_ = 0;
  bool unusual_ = false;
};

// Why an op cannot run on slices, a static string; empty where it can.
using Reason = std::string_view;
// Sets the rules of the outputs and, where they do not follow, the uses of the operands.
using RuleFunction = Reason (*)(RuleContext&);

inline constexpr std::uint8_t kNoSizes = 255;

struct RuleEntry {
  std::string_view type;  // "aten.mm.default"
  RuleFunction function;
  std::uint8_t trait = 0;  // means what the function says
  // The positional argument that lists the sizes of the result. The walk sees to it that the batch
  // stands in it where the result is cut and nowhere else.
  std::uint8_t sizes = kNoSizes;
};

std::span<const RuleEntry> pointwise_rules();
std::span<const RuleEntry> linear_rules();
std::span<const RuleEntry> shape_rules();
std::span<const RuleEntry> join_rules();
std::span<const RuleEntry> create_rules();
std::span<const RuleEntry> reduce_rules();
std::span<const RuleEntry> index_rules();
std::span<const RuleEntry> loss_rules();
std::span<const RuleEntry> nn_rules();

// Null if no table has the overload.
const RuleEntry* find_rule(std::string_view type);
// Every overload that has a rule, in the order of the tables.
std::vector<std::string_view> rule_types();

// Rules are made of these.
inline constexpr SplitRule kSameRule{SplitKind::kSame, 0, 1};
inline constexpr SplitRule kSumRule{SplitKind::kSum, 0, 1};
inline constexpr SplitRule kMeanRule{SplitKind::kMean, 0, 1};
inline constexpr SplitRule kLocalRule{SplitKind::kLocal, 0, 1};
SplitRule concat_rule(std::size_t dim, std::int64_t outer = 1);
inline SplitRule partial_rule(SplitKind kind) { return {kind, 0, 1}; }

// Dimension `dim` counted from the end if negative.
std::size_t wrap_dim(std::int64_t dim, std::size_t rank);
bool has_batch(std::span<const Affine> shape);
bool is_floating(DType dtype);
// The only dimension that depends on the batch, if it is a·B; none if there is no such dimension
// or more than one.
std::optional<std::size_t> batch_dim(std::span<const Affine> shape);

// From now on the op reads the operand reduced over the slices: its rule becomes kSame.
void reduce(Operand& operand);
void reduce_all(std::span<Operand> operands);
bool any_sliced(std::span<const Operand> operands);
bool any_local(std::span<const Operand> operands);
bool any_partial(std::span<const Operand> operands);
// Cut alike, with as many rows a sample; or neither is cut and both are of one kind.
bool cut_alike(const Operand& a, const Operand& b);

// The result of an op that is linear in all of `addends` together, none of them sliced. A kSame
// addend of a sum is kept on one instance; sums and means together are reduced.
SplitRule join_addends(std::span<Operand* const> addends);

// Slices of operands that broadcast into `out`: all cut alike, or a reason. Partial operands must
// have been reduced. kSame if nothing is sliced.
struct Sliced {
  SplitRule rule = kSameRule;
  Reason reason;
};
Sliced broadcast_slices(std::span<const Operand> operands, std::span<const Affine> out);

// Reasons that several rules give.
inline constexpr Reason kReadsLocal = "reads a value that has a meaning on its own slice only";
inline constexpr Reason kCutApart = "operands are cut along different dimensions of the batch";
inline constexpr Reason kAcrossBatch = "works across the samples of the batch";
inline constexpr Reason kNoBatchDim = "its result is not a whole number of rows for each sample";
inline constexpr Reason kUnusualArguments = "arguments of a form that the rule does not know";

}  // namespace heterog::graph

// Ops that are merged, tensors between them, and the problem of both.
#include "search/coarse/coarse_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decide/pass_turns.h"

namespace heterog::search {
namespace {

using graph::OperandUse;
using graph::Phase;
using graph::Read;
using graph::SplitKind;
using graph::TensorRole;

enum class Pass : std::uint8_t { kMadeOfParameters, kForward, kBackward, kGradients, kTiedSum };
constexpr bool is_forward(Pass pass) {
  return pass == Pass::kMadeOfParameters || pass == Pass::kForward;
}

constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::string_view kType = "heterog.layer.default";
constexpr graph::SplitRule kSame{SplitKind::kSame, 0, 1}, kSum{SplitKind::kSum, 0, 1};
// Of the coarse problem, as the program has it for any other.
constexpr int kMostGroups = cost::ProblemOptions().max_groups;

// The ops of a layer that go by as one.
struct Merged {
  std::uint32_t layer = 0;
  Pass pass = Pass::kForward;
  std::vector<OpId> ops;
};

class Coarsening {
 public:
  Coarsening(const cost::Problem& problem, const Chain& chain)
      : problem_(problem),
        graph_(*problem.graph),
        folded_(*problem.folded),
        chain_(chain),
        merged_of_(graph_.op_count(), kNone) {}

  std::optional<Coarse> make() {
    if (!merge_ops() || !sort()) return std::nullopt;
    group_parameters();
    for (Group& group : groups_) add_parameters(group);
    stands_for_.resize(merged_.size());
    for (std::uint32_t at : order_) add_op(at);
    for (const Group& group : groups_) add_update(group);
    return finish();
  }

 private:
  // Parameters whose gradients one merged op makes, and whose readers are in the same layers.
  struct Group {
    std::vector<TensorId> parameters;
    std::uint32_t made_by = kNone;  // none: they are frozen
    std::int64_t elements = 0;
    Bytes state_bytes = 0;
    TensorId parameter, state, gradient;  // of the coarse problem; perhaps no state
  };

  bool merge_ops() {
    IdVector<OpId, UnitId> unit_of;
    for (std::uint32_t layer : chain_.layer_of) unit_of.push_back(UnitId(layer));
    const IdVector<OpId, std::uint8_t> gradients = decide::makes_gradients(problem_, unit_of);
    std::vector<std::uint8_t> of_parameters(graph_.op_count(), 0), tied(graph_.op_count(), 0);
    for (const graph::ParameterOp& one : folded_.parameter_ops) of_parameters[one.op.value()] = 1;
    for (const graph::TiedSum& one : folded_.tied_sums) tied[one.op.value()] = 1;
    // By layer, pass and, of what has units or sums of its own, op.
    std::map<std::tuple<std::uint32_t, Pass, std::uint32_t>, std::uint32_t> known;
    for (OpId op : folded_.ops) {
      const Phase phase = graph_.op(op).phase;
      if (phase == Phase::kUpdate) continue;
      if (!problem_.splits->sliceable[op]) return false;
      Pass pass = phase == Phase::kForward ? Pass::kForward : Pass::kBackward;
      std::uint32_t apart = 0;
      if (of_parameters[op.value()]) {
        pass = Pass::kMadeOfParameters;
        apart = op.value();
      } else if (tied[op.value()]) {
        pass = Pass::kTiedSum;
        apart = op.value();
      } else if (gradients[op]) {
        pass = Pass::kGradients;
        // Its gradient may travel as the rows that were looked up.
        if (graph_.facts(op).sparse_gradient) apart = op.value();
      }
      const auto [at, is_new] =
          known.try_emplace({chain_.layer_of[op], pass, apart}, merged_.size());
      if (is_new) merged_.push_back({chain_.layer_of[op], pass, {}});
      merged_[at->second].ops.push_back(op);
      merged_of_[op] = at->second;
    }
    return true;
  }

  // What merged ops read of each other; not what is added up over all micro-batches first.
  bool reads_pass(const Read& read) const {
    return read.producer.valid() && merged_of_[read.producer] != kNone &&
           read.use != OperandUse::kReduced;
  }

  // Each merged op behind those that it reads; false if they go round in a circle.
  bool sort() {
    std::vector<std::vector<std::uint32_t>> next(merged_.size());
    std::vector<std::uint32_t> waits_for(merged_.size(), 0);
    read_by_others_.resize(merged_.size());
    for (std::uint32_t at = 0; at < merged_.size(); ++at) {
      for (OpId op : merged_[at].ops) {
        for (const Read& read : folded_.reads[op]) {
          if (!reads_pass(read) || merged_of_[read.producer] == at) continue;
          next[merged_of_[read.producer]].push_back(at);
          read_by_others_[merged_of_[read.producer]].push_back(read);
        }
      }
    }
    for (auto& one : next) {
      std::ranges::sort(one);
      one.erase(std::ranges::unique(one).begin(), one.end());
      for (std::uint32_t at : one) ++waits_for[at];
    }
    // The earliest first op first; forward passes before all else, as their phase is.
    using Item = std::tuple<bool, std::uint32_t, std::uint32_t>;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> open;
    const auto add = [&](std::uint32_t at) {
      const bool later = !is_forward(merged_[at].pass);
      open.emplace(later, merged_[at].ops.front().value(), at);
    };
    for (std::uint32_t at = 0; at < merged_.size(); ++at) {
      if (waits_for[at] == 0) add(at);
    }
    while (!open.empty()) {
      const std::uint32_t at = std::get<2>(open.top());
      open.pop();
      order_.push_back(at);
      for (std::uint32_t one : next[at]) {
        if (--waits_for[one] == 0) add(one);
      }
    }
    return order_.size() == merged_.size();
  }

  void group_parameters() {
    IdVector<TensorId, TensorId> gradient_of(graph_.tensor_count());
    for (TensorId tensor : graph_.tensor_ids()) {
      if (graph_.tensor(tensor).role == TensorRole::kGradient) {
        gradient_of[graph_.tensor(tensor).of] = tensor;
      }
    }
    group_of_.assign(graph_.tensor_count(), kNone);
    std::map<std::tuple<std::vector<std::uint32_t>, std::uint32_t, graph::DType>, std::uint32_t>
        known;
    for (TensorId parameter : graph_.parameters()) {
      std::vector<std::uint32_t> readers;
      for (OpId op : folded_.parameter_readers[parameter]) {
        if (merged_of_[op] != kNone) readers.push_back(chain_.layer_of[op]);
      }
      std::ranges::sort(readers);
      readers.erase(std::ranges::unique(readers).begin(), readers.end());
      if (readers.empty()) continue;
      std::uint32_t made_by = kNone;
      if (const TensorId gradient = gradient_of[parameter]; gradient.valid()) {
        const OpId producer = graph_.tensor(graph_.root(gradient)).producer;
        if (producer.valid()) made_by = merged_of_[producer];
      }
      const auto [at, is_new] =
          known.try_emplace({readers, made_by, graph_.tensor(parameter).dtype}, groups_.size());
      if (is_new) groups_.push_back({.made_by = made_by});
      groups_[at->second].parameters.push_back(parameter);
      groups_[at->second].elements += graph_.elements(parameter, 1);
      group_of_[parameter] = at->second;
    }
    for (TensorId tensor : graph_.tensor_ids()) {
      const graph::Tensor& one = graph_.tensor(tensor);
      if (one.role != TensorRole::kOptimizerState || !one.of.valid()) continue;
      const std::uint32_t group = group_of_[one.of];
      if (group != kNone) groups_[group].state_bytes += graph_.bytes(tensor, 1);
    }
  }

  TensorId add_tensor(graph::GraphBuilder::TensorSpec spec, graph::SplitRule rule) {
    spec.name = fmt::format("{}", rules_.size());
    rules_.push_back(rule);
    return builder_.add_tensor(std::move(spec));
  }

  // The tensor that stands for one of the whole problem.
  TensorId coarse_of(TensorId tensor, TensorRole role, graph::SplitRule rule) {
    const auto [known, is_new] = coarse_of_.try_emplace(tensor, TensorId());
    if (is_new) {
      const auto shape = graph_.shape(tensor);
      known->second = add_tensor({.role = role,
                                  .dtype = graph_.tensor(tensor).dtype,
                                  .shape = {shape.begin(), shape.end()}},
                                 rule);
    }
    return known->second;
  }

  graph::GraphBuilder::TensorSpec like_parameter(const Group& group, TensorRole role) const {
    return {.role = role,
            .dtype = graph_.tensor(group.parameters.front()).dtype,
            .shape = {{0, group.elements}}};
  }

  void add_parameters(Group& group) {
    group.parameter = add_tensor(like_parameter(group, TensorRole::kParameter), kSame);
    if (group.made_by == kNone) return;
    auto gradient = like_parameter(group, TensorRole::kGradient);
    gradient.of = group.parameter;
    group.gradient = add_tensor(std::move(gradient), kSum);
    if (group.state_bytes == 0) return;
    group.state = add_tensor({.role = TensorRole::kOptimizerState,
                              .dtype = graph::DType::kUInt8,
                              .shape = {{0, group.state_bytes}},
                              .of = group.parameter},
                             kSame);
  }

  struct Operand {
    TensorId tensor;  // coarse
    OperandUse use = OperandUse::kSame;
  };

  // What a merged op reads that is there before the step; invalid where it is left out.
  TensorId given(const Read& read) {
    const graph::Tensor& base = graph_.tensor(read.base);
    if (base.role == TensorRole::kParameter) {
      const std::uint32_t group = group_of_[read.base];
      return group == kNone ? TensorId() : groups_[group].parameter;
    }
    if (base.role != TensorRole::kInput) return TensorId();
    return coarse_of(read.base, TensorRole::kInput, problem_.splits->rules[read.base]);
  }

  // Of what the ops of a merged op read, what it does not make itself, once each.
  std::vector<Operand> operands_of(std::uint32_t at) {
    std::vector<Operand> operands;
    for (OpId op : merged_[at].ops) {
      for (const Read& read : folded_.reads[op]) {
        if (read.use == OperandUse::kReduced) continue;
        if (read.producer.valid() && (!reads_pass(read) || merged_of_[read.producer] == at)) {
          continue;
        }
        const TensorId tensor = read.producer.valid()
                                    ? coarse_of(read.tensor, TensorRole::kActivation, read.rule)
                                    : given(read);
        if (!tensor.valid() ||
            std::ranges::find(operands, tensor, &Operand::tensor) != operands.end())
          continue;
        operands.push_back({tensor, read.use});
      }
    }
    return operands;
  }

  // What others read of it, and gradients; something, if nobody reads anything.
  std::vector<TensorId> results_of(std::uint32_t at) {
    std::vector<TensorId> results;
    for (const Read& read : read_by_others_[at]) {
      const TensorId tensor = coarse_of(read.tensor, TensorRole::kActivation, read.rule);
      if (std::ranges::find(results, tensor) == results.end()) results.push_back(tensor);
    }
    for (const Group& group : groups_) {
      if (group.made_by == at) results.push_back(group.gradient);
    }
    if (results.empty()) results.push_back(add_tensor({.shape = {{0, 1}}}, kSum));
    return results;
  }

  void add_op(std::uint32_t at) {
    const Merged& merged = merged_[at];
    stands_for_[at] = OpId(layer_of_.size());
    const std::vector<Operand> operands = operands_of(at);
    // What is known of its kind is told by its type and operands.
    const OpId first = merged.ops.front();
    const bool is_itself = merged.ops.size() == 1 && operands.size() == graph_.inputs(first).size();
    push_op(is_itself ? graph_.type_name(first) : kType,
            is_forward(merged.pass) ? Phase::kForward : Phase::kBackward, operands, results_of(at),
            merged.layer, {merged.ops, {}});
  }

  void push_op(std::string_view type, Phase phase, const std::vector<Operand>& operands,
               std::vector<TensorId> results, std::uint32_t layer, cost::MergedOps ops) {
    std::vector<graph::Value> args;
    std::vector<OperandUse> uses;
    for (const auto& [tensor, use] : operands) {
      args.push_back(graph::tensor_value(tensor));
      uses.push_back(use);
    }
    builder_.add_op({.name = fmt::format("{}", layer_of_.size()),
                     .type = std::string(type),
                     .phase = phase,
                     .args = std::move(args),
                     .outputs = std::move(results)});
    uses_.push_row(uses);
    layer_of_.push_back(layer);
    members_.push_back(std::move(ops));
  }

  // What updates the parameters of a group. Calls that take lists are made once for many.
  cost::MergedOps updates_of(const Group& group) const {
    cost::MergedOps ops;
    for (TensorId parameter : group.parameters) {
      const auto chain =
          std::ranges::find(folded_.chains, parameter, &graph::UpdateChain::parameter);
      if (chain == folded_.chains.end()) continue;
      for (std::size_t i = 0; i < chain->ops.size(); ++i) {
        if (chain->calls[i] == graph::SharedCall::kApart) ops.apart.push_back(chain->ops[i]);
        if (chain->calls[i] == graph::SharedCall::kLists) ops.listed.push_back(chain->ops[i]);
      }
    }
    return ops;
  }

  void add_update(const Group& group) {
    cost::MergedOps ops = updates_of(group);
    if (group.made_by == kNone || (ops.apart.empty() && ops.listed.empty())) return;
    auto next = like_parameter(group, TensorRole::kOutput);
    next.replaces = group.parameter;
    std::vector<Operand> operands = {{group.parameter, OperandUse::kSame},
                                     {group.gradient, OperandUse::kReduced}};
    if (group.state.valid()) operands.push_back({group.state, OperandUse::kSame});
    push_op(kType, Phase::kUpdate, operands, {add_tensor(std::move(next), kSame)},
            merged_[group.made_by].layer, std::move(ops));
  }

  Coarse finish() {
    auto made = std::make_unique<cost::Problem>();
    made->graph =
        std::make_shared<const graph::ModelGraph>(std::move(builder_).build(graph_.name()));
    graph::SplitAnalysis splits;
    splits.rules = std::move(rules_);
    splits.uses = std::move(uses_);
    splits.sliceable.assign(made->graph->op_count(), 1);
    splits.reason.assign(made->graph->op_count(), {});
    made->splits = std::make_shared<const graph::SplitAnalysis>(std::move(splits));
    made->folded = std::make_shared<const graph::FoldedGraph>(
        graph::fold_aliases(*made->graph, *made->splits));
    made->cluster = problem_.cluster;
    made->costs = cost::merged(problem_.costs, *problem_.cluster, members_);
    made->grouping = graph::group_ops(*made->graph, made->costs.mean_seconds(), kMostGroups);
    made->batch = problem_.batch;
    made->proportional = problem_.proportional;
    made->compression = problem_.compression;
    Chain chain = chain_;
    chain.layer_of = std::move(layer_of_);
    IdVector<OpId, OpId> stands_for(graph_.op_count());
    for (OpId op : graph_.op_ids()) {
      if (merged_of_[op] != kNone) stands_for[op] = stands_for_[merged_of_[op]];
    }
    return {std::move(made), std::move(chain), std::move(stands_for), chain_.layer_of};
  }

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  const graph::FoldedGraph& folded_;
  const Chain& chain_;
  std::vector<Merged> merged_;
  IdVector<OpId, std::uint32_t> merged_of_;
  std::vector<std::uint32_t> order_;  // of `merged_`, topological
  std::vector<Group> groups_;
  IdVector<TensorId, std::uint32_t> group_of_;
  std::vector<std::vector<Read>> read_by_others_;  // of each of `merged_`
  // Of the coarse problem.
  graph::GraphBuilder builder_{"coarse"};
  std::map<TensorId, TensorId> coarse_of_;
  IdVector<TensorId, graph::SplitRule> rules_;
  Csr<OpId, OperandUse> uses_;
  IdVector<OpId, std::uint32_t> layer_of_;
  std::vector<cost::MergedOps> members_;
  std::vector<OpId> stands_for_;  // each of `merged_`
};

}  // namespace

decide::Strategy of_whole(const Coarse& coarse, decide::Strategy strategy) {
  IdVector<OpId, UnitId> unit_of_op;
  for (OpId op : id_range<OpId>(coarse.layer_of.size())) {
    const OpId merged = coarse.stands_for[op];
    unit_of_op.push_back(merged.valid() ? strategy.unit_of_op[merged]
                                        : UnitId(coarse.layer_of[op]));
  }
  strategy.unit_of_op = std::move(unit_of_op);
  return strategy;
}

std::optional<Coarse> coarse_problem(const cost::Problem& problem, const Chain& chain) {
  return Coarsening(problem, chain).make();
}

}  // namespace heterog::search

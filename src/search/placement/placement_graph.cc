// Nodes from folded ops, sets from what has to stay together, edges from what is read.
#include "search/placement/placement_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace heterog::search {
namespace {

using graph::OperandUse;
using graph::Phase;
using graph::Read;

// Union of sets by their least member.
class Together {
 public:
  explicit Together(std::size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  std::uint32_t root(std::uint32_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  void join(NodeId a, NodeId b) {
    const std::uint32_t one = root(a.value()), other = root(b.value());
    parent_[std::max(one, other)] = std::min(one, other);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

bool bound_to_producer(OperandUse use) {
  return use == OperandUse::kLocal || use == OperandUse::kPartial;
}

class Maker {
 public:
  Maker(const cost::Problem& problem, Backward backward)
      : problem_(problem),
        graph_(*problem.graph),
        backward_(backward),
        node_of_(graph_.op_count()) {
    made_.problem = &problem;
  }

  PlacementGraph make() && {
    number_nodes();
    Together together(made_.size());
    join(together);
    IdVector<NodeId, SetId> set_of_root(made_.size());
    for (NodeId node : made_.nodes()) {
      const NodeId root(together.root(node.value()));
      if (!set_of_root[root].valid()) {
        set_of_root[root] = made_.set_bytes.push_back(0);
        made_.parameter_bytes.push_back(0);
      }
      made_.set_of.push_back(set_of_root[root]);
    }
    weigh();
    connect();
    return std::move(made_);
  }

 private:
  void add(std::vector<OpId> ops) {
    for (OpId op : ops) node_of_[op] = NodeId(made_.size());
    made_.ops.push_back(std::move(ops));
  }

  // An update reads what any op has made, and nothing but other updates reads what it makes, which
  // may be of another parameter's: such ops stand behind all that they read.
  void number_nodes() {
    const auto& folded = *problem_.folded;
    std::vector<std::pair<OpId, std::vector<OpId>>> nodes;
    for (OpId op : folded.ops) nodes.push_back({op, {op}});
    for (const graph::UpdateChain& chain : folded.chains) {
      std::vector<OpId> ops = chain.ops;
      // By which the compiler names the update (decide::OpPriority).
      const OpId updater = folded.updater[chain.parameter];
      const OpId names = updater.valid() ? updater : chain.ops.back();
      std::erase(ops, names);
      ops.push_back(names);
      nodes.push_back({chain.ops.back(), std::move(ops)});
    }
    std::ranges::sort(nodes);
    for (auto& [op, ops] : nodes) add(std::move(ops));
  }

  // Where a parameter's nodes are: that of its first reader, or its update.
  NodeId node_of_parameter(TensorId parameter) const {
    const auto readers = problem_.folded->parameter_readers[parameter];
    if (!readers.empty()) return node_of_[readers.front()];
    const OpId updater = problem_.folded->updater[parameter];
    return updater.valid() ? node_of_[updater] : NodeId();
  }

  void join(Together& together) {
    const auto& folded = *problem_.folded;
    for (TensorId parameter : graph_.parameters()) {
      const NodeId first = node_of_parameter(parameter);
      if (!first.valid()) continue;
      for (OpId reader : folded.parameter_readers[parameter]) {
        together.join(first, node_of_[reader]);
      }
    }
    for (const graph::UpdateChain& chain : folded.chains) {
      const NodeId home = node_of_parameter(chain.parameter);
      if (home.valid()) together.join(home, node_of_[chain.ops.back()]);
    }
    for (OpId op : folded.ops) {
      const TensorId home = folded.home[op];
      if (graph_.op(op).phase == Phase::kUpdate && home.valid()) {
        const NodeId there = node_of_parameter(home);
        if (there.valid()) together.join(there, node_of_[op]);
        continue;
      }
      const OpId forward = graph_.op(op).forward;
      if (backward_ == Backward::kWithForward && forward.valid() && node_of_[forward].valid()) {
        together.join(node_of_[forward], node_of_[op]);
      }
      for (const Read& read : folded.reads[op]) {
        if (!read.producer.valid() || !bound_to_producer(read.use)) continue;
        together.join(node_of_[read.producer], node_of_[op]);
      }
    }
    for (const graph::ParameterOp& made : folded.parameter_ops) {
      for (OpId reader : made.readers) together.join(node_of_[made.op], node_of_[reader]);
    }
  }

  void weigh() {
    for (NodeId node : made_.nodes()) {
      for (DeviceTypeId type : id_range<DeviceTypeId>(problem_.cluster->type_count())) {
        Nanoseconds sum = 0;
        for (OpId op : made_.ops[node]) sum += problem_.costs.duration(op, type, problem_.batch);
        made_.durations.push_back(sum);
      }
    }
    for (TensorId tensor : graph_.tensor_ids()) {
      const graph::Tensor& one = graph_.tensor(tensor);
      const bool stays = one.role == graph::TensorRole::kParameter ||
                         one.role == graph::TensorRole::kOptimizerState;
      const TensorId parameter = one.role == graph::TensorRole::kParameter ? tensor : one.of;
      if (!stays || !parameter.valid()) continue;
      const NodeId node = node_of_parameter(parameter);
      if (!node.valid()) continue;
      const bool has_gradient = tensor == parameter && problem_.folded->updater[tensor].valid();
      made_.set_bytes[made_.set_of[node]] += graph_.bytes(tensor, 1) * (has_gradient ? 2 : 1);
      if (tensor == parameter) made_.parameter_bytes[made_.set_of[node]] += graph_.bytes(tensor, 1);
    }
    // What is read through an alias is kept with its base.
    made_.kept.assign(made_.size(), 0);
    IdVector<TensorId, std::uint8_t> counted(graph_.tensor_count(), 0);
    for (OpId op : problem_.folded->ops) {
      Bytes passes = 0;
      for (const Read& read : problem_.folded->reads[op]) {
        passes += graph_.bytes(read.tensor, problem_.batch);
        if (graph_.op(op).phase != Phase::kBackward || !read.producer.valid()) continue;
        if (graph_.op(read.producer).phase != Phase::kForward || counted[read.base]) continue;
        counted[read.base] = 1;
        made_.kept[node_of_[read.producer]] += graph_.bytes(read.base, problem_.batch);
      }
      for (TensorId out : graph_.outputs(op)) {
        if (out.valid()) passes += graph_.bytes(out, problem_.batch);
      }
      made_.passing = std::max(made_.passing, passes);
    }
  }

  void connect() {
    IdVector<TensorId, ValueId> value_of(graph_.tensor_count());
    std::vector<std::pair<NodeId, Edge>> inputs, outputs;
    const auto connect_reads = [&](NodeId reader, std::span<const Read> reads) {
      const std::size_t before = inputs.size();
      for (const Read& read : reads) {
        const NodeId producer = read.producer.valid() ? node_of_[read.producer] : NodeId();
        if (!producer.valid() || producer == reader) continue;
        if (!value_of[read.tensor].valid()) value_of[read.tensor] = ValueId(made_.value_count++);
        const Edge edge{producer, value_of[read.tensor], graph_.bytes(read.tensor, problem_.batch)};
        const bool known =
            std::any_of(inputs.begin() + static_cast<std::ptrdiff_t>(before), inputs.end(),
                        [&](const auto& one) { return one.second.value == edge.value; });
        if (known) continue;
        inputs.emplace_back(reader, edge);
        outputs.emplace_back(producer, Edge{reader, edge.value, edge.bytes});
      }
    };
    for (OpId op : problem_.folded->ops) connect_reads(node_of_[op], problem_.folded->reads[op]);
    for (const graph::UpdateChain& chain : problem_.folded->chains) {
      connect_reads(node_of_[chain.ops.back()], chain.reads);
    }
    made_.inputs = Csr<NodeId, Edge>::from_pairs(made_.size(), inputs);
    made_.outputs = Csr<NodeId, Edge>::from_pairs(made_.size(), outputs);
    EXPECT(
        std::ranges::all_of(inputs, [](const auto& one) { return one.second.node < one.first; }));
  }

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  Backward backward_;
  IdVector<OpId, NodeId> node_of_;
  PlacementGraph made_;
};

}  // namespace

bool is_update(const PlacementGraph& graph, NodeId node) {
  return graph.problem->graph->op(graph.ops[node].back()).phase == Phase::kUpdate;
}

PlacementGraph make_placement_graph(const cost::Problem& problem, Backward backward) {
  return Maker(problem, backward).make();
}

PlacementGraph coarsened(const PlacementGraph& graph, const std::vector<NodeId>& order,
                         const std::vector<std::uint32_t>& cluster_of_position) {
  PlacementGraph made;
  made.problem = graph.problem;
  made.passing = graph.passing;
  made.value_count = graph.value_count;
  const std::size_t types = graph.problem->cluster->type_count();
  IdVector<NodeId, NodeId> cluster(graph.size());
  IdVector<SetId, std::uint8_t> counted(graph.set_bytes.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const NodeId node = order[i], into(cluster_of_position[i]);
    cluster[node] = into;
    if (into.value() == made.size()) {
      made.ops.push_back({});
      made.kept.push_back(0);
      made.set_of.push_back(made.set_bytes.push_back(0));
      made.durations.resize(made.durations.size() + types, 0);
    }
    auto& ops = made.ops[into];
    ops.insert(ops.end(), graph.ops[node].begin(), graph.ops[node].end());
    made.kept[into] += graph.kept[node];
    if (!std::exchange(counted[graph.set_of[node]], 1)) {
      made.set_bytes[made.set_of[into]] += graph.set_bytes[graph.set_of[node]];
    }
    for (std::size_t type = 0; type < types; ++type) {
      made.durations[into.value() * types + type] += graph.durations[node.value() * types + type];
    }
  }
  std::set<std::tuple<NodeId, NodeId, ValueId>> known;
  std::vector<std::pair<NodeId, Edge>> inputs, outputs;
  for (NodeId node : order) {
    for (const Edge& edge : graph.inputs[node]) {
      const NodeId from = cluster[edge.node], to = cluster[node];
      if (from == to || !known.emplace(from, to, edge.value).second) continue;
      inputs.emplace_back(to, Edge{from, edge.value, edge.bytes});
      outputs.emplace_back(from, Edge{to, edge.value, edge.bytes});
    }
  }
  made.inputs = Csr<NodeId, Edge>::from_pairs(made.size(), inputs);
  made.outputs = Csr<NodeId, Edge>::from_pairs(made.size(), outputs);
  return made;
}

decide::Strategy placed(const PlacementGraph& graph, const Placement& placement,
                        const std::vector<NodeId>& started) {
  decide::Strategy strategy;
  strategy.unit_of_op.assign(graph.problem->graph->op_count(), UnitId(0));
  for (DeviceId device : graph.problem->cluster->device_ids()) {
    strategy.units.push_back(decide::single_decision(device));
  }
  for (NodeId node : graph.nodes()) {
    for (OpId op : graph.ops[node]) strategy.unit_of_op[op] = UnitId(placement[node].value());
  }
  if (started.empty()) return strategy;
  strategy.order = decide::OrderPolicy::kPriority;
  auto urgency = static_cast<std::int64_t>(started.size());
  for (NodeId node : started) {
    strategy.priorities.push_back({graph.ops[node].back(), 0, urgency--});
  }
  std::ranges::sort(strategy.priorities, {}, &decide::OpPriority::op);
  return strategy;
}

}  // namespace heterog::search

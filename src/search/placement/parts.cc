// Nodes to parts, placements of parts to strategies.
#include "search/placement/parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "decide/layout.h"

namespace heterog::search {
namespace {

class Parter {
 public:
  Parter(const PlacementGraph& whole, const Parts& parts)
      : whole_(whole), parts_(parts), first_set_(parts.size()), begun_(parts.size(), 0) {
    made_.first = IdVector<NodeId, NodeId>(whole.size());
    graph_.problem = whole.problem;
    graph_.passing = whole.passing;
    graph_.transfers = whole.transfers;
  }

  PartedGraph make() && {
    number_sets();
    for (NodeId node : whole_.nodes()) add_parts(node);
    for (NodeId node : whole_.nodes()) connect(node);
    graph_.inputs = Csr<NodeId, Edge>::from_pairs(graph_.size(), inputs_);
    graph_.outputs = Csr<NodeId, Edge>::from_pairs(graph_.size(), outputs_);
    return std::move(made_);
  }

 private:
  std::int64_t batch() const { return whole_.problem->batch; }
  std::int64_t count(NodeId node) const {
    // An update is of all samples at once.
    return is_update(whole_, node) ? 1 : parts_[whole_.set_of[node]];
  }

  void number_sets() {
    for (SetId set : id_range<SetId>(parts_.size())) {
      EXPECT(parts_[set] >= 1 && parts_[set] <= batch());
      first_set_[set] = SetId(graph_.set_bytes.size());
      for (std::int64_t part = 0; part < parts_[set]; ++part) {
        graph_.set_bytes.push_back(whole_.set_bytes[set]);
        graph_.parameter_bytes.push_back(whole_.parameter_bytes[set]);
      }
    }
  }

  NodeId add(NodeId node, std::int64_t part, SetId set) {
    const NodeId made(graph_.size());
    graph_.ops.push_back(node.valid() ? whole_.ops[node] : std::vector<OpId>());
    graph_.set_of.push_back(SetId(set.value() + static_cast<std::size_t>(part)));
    made_.part_of.push_back({node, static_cast<std::uint32_t>(part)});
    return made;
  }

  void add_parts(NodeId node) {
    const cost::Problem& problem = *whole_.problem;
    const SetId set = whole_.set_of[node];
    const std::int64_t parts = count(node);
    const auto types = id_range<DeviceTypeId>(problem.cluster->type_count());
    NodeId source;
    if (parts > 1 && !std::exchange(begun_[set], 1) && whole_.parameter_bytes[set] > 0) {
      source = add(NodeId(), 0, first_set_[set]);
      graph_.kept.push_back(0);
      graph_.durations.resize(graph_.durations.size() + problem.cluster->type_count(), 0);
    }
    const ValueId sent(graph_.value_count);
    if (source.valid()) ++graph_.value_count;
    for (std::int64_t part = 0; part < parts; ++part) {
      const NodeId made = add(node, part, first_set_[set]);
      if (part == 0) made_.first[node] = made;
      const std::int64_t samples = batch() * (part + 1) / parts - batch() * part / parts;
      graph_.kept.push_back(whole_.kept[node] * samples / batch());
      for (DeviceTypeId type : types) {
        Nanoseconds sum = 0;
        if (parts == 1) {
          sum = whole_.duration(node, type);
        } else {
          for (OpId op : whole_.ops[node]) sum += problem.costs.duration(op, type, samples);
        }
        graph_.durations.push_back(sum);
      }
      if (source.valid() && part > 0) join(source, made, sent, whole_.parameter_bytes[set]);
    }
  }

  void join(NodeId from, NodeId to, ValueId value, Bytes bytes) {
    inputs_.emplace_back(to, Edge{from, value, bytes});
    outputs_.emplace_back(from, Edge{to, value, bytes});
  }
  ValueId new_values(std::int64_t number) {
    return ValueId(
        std::exchange(graph_.value_count, graph_.value_count + static_cast<std::size_t>(number)));
  }

  // Parts that are alike pass on what they make part by part. Else each reads what overlaps it.
  void connect(NodeId node) {
    const std::int64_t readers = count(node);
    for (const Edge& edge : whole_.inputs[node]) {
      const std::int64_t writers = count(edge.node);
      if (is_update(whole_, node) || writers == readers) {
        if (value_of_.size() < whole_.value_count) value_of_.resize(whole_.value_count);
        ValueId& values = value_of_[edge.value];
        if (!values.valid()) values = new_values(writers);
        for (std::int64_t from = 0; from < writers; ++from) {
          const Bytes bytes = is_update(whole_, node) ? edge.bytes : edge.bytes / writers;
          join(at(edge.node, from), at(node, readers == 1 ? 0 : from),
               ValueId(values.value() + static_cast<std::size_t>(from)), std::max<Bytes>(bytes, 1));
        }
        continue;
      }
      for (std::int64_t to = 0; to < readers; ++to) {
        for (std::int64_t from = 0; from < writers; ++from) {
          const std::int64_t overlap = std::min((from + 1) * readers, (to + 1) * writers) -
                                       std::max(from * readers, to * writers);
          if (overlap <= 0) continue;
          join(at(edge.node, from), at(node, to), new_values(1),
               std::max<Bytes>(edge.bytes / (readers * writers) * overlap, 1));
        }
      }
    }
  }
  NodeId at(NodeId node, std::int64_t part) const {
    return NodeId(made_.first[node].value() + static_cast<std::size_t>(part));
  }

  const PlacementGraph& whole_;
  const Parts& parts_;
  PartedGraph made_;
  PlacementGraph& graph_ = made_.graph;
  IdVector<SetId, SetId> first_set_;
  IdVector<SetId, std::uint8_t> begun_;
  IdVector<ValueId, ValueId> value_of_;
  std::vector<std::pair<NodeId, Edge>> inputs_, outputs_;
};

// Devices with how many parts each, in the order of the first.
std::vector<decide::Replica> replicas_of(const std::vector<DeviceId>& devices) {
  std::vector<decide::Replica> replicas;
  for (DeviceId device : devices) {
    const auto known = std::ranges::find(replicas, device, &decide::Replica::device);
    if (known == replicas.end()) {
      replicas.push_back({device, 1});
    } else {
      known->weight += 1;
    }
  }
  return replicas;
}

// By the layout: which instances there are, and where.
void set_priorities(const PlacementGraph& whole, const PartedGraph& parts,
                    const Placement& placement, const std::vector<NodeId>& started,
                    decide::Strategy& strategy) {
  const cost::Problem& problem = *whole.problem;
  const decide::Layout layout = decide::lay_out(problem, strategy);
  IdVector<NodeId, std::int64_t> urgency(parts.graph.size());
  auto next = static_cast<std::int64_t>(started.size());
  for (NodeId node : started) urgency[node] = next--;
  strategy.order = decide::OrderPolicy::kPriority;
  for (NodeId node : whole.nodes()) {
    const OpId op = whole.ops[node].back();
    const decide::LayoutId at = decide::task_layout(problem, layout, op);
    if (!at.valid()) continue;
    const auto& slices = layout.slices[at];
    for (std::uint32_t i = 0; i < slices.size(); ++i) {
      std::int64_t most = -1;
      for (NodeId part = parts.first[node];
           part.value() < parts.graph.size() && parts.part_of[part].whole == node;
           part = NodeId(part.value() + 1)) {
        if (placement[part] == slices[i].device) most = std::max(most, urgency[part]);
      }
      // An update on every replica has one part.
      strategy.priorities.push_back({op, i, most >= 0 ? most : urgency[parts.first[node]]});
    }
  }
  std::ranges::sort(strategy.priorities, {},
                    [](const decide::OpPriority& one) { return std::pair(one.op, one.instance); });
}

}  // namespace

IdVector<SetId, std::uint8_t> sets_that_split(const PlacementGraph& whole) {
  IdVector<SetId, std::uint8_t> splits(whole.set_bytes.size(), 0);
  IdVector<SetId, std::uint8_t> refuses(whole.set_bytes.size(), 0);
  for (NodeId node : whole.nodes()) {
    if (is_update(whole, node)) continue;
    const SetId set = whole.set_of[node];
    splits[set] = 1;
    for (OpId op : whole.ops[node]) {
      if (!whole.problem->splits->sliceable[op]) refuses[set] = 1;
    }
  }
  for (SetId set : id_range<SetId>(splits.size())) splits[set] = splits[set] && !refuses[set];
  return splits;
}

PartedGraph in_parts(const PlacementGraph& whole, const Parts& parts) {
  return Parter(whole, parts).make();
}

decide::Strategy placed_parts(const PlacementGraph& whole, const PartedGraph& parts,
                              const Placement& placement, const std::vector<NodeId>& started,
                              decide::SyncMethod sync) {
  const cost::Problem& problem = *whole.problem;
  decide::Strategy strategy;
  strategy.unit_of_op.assign(problem.graph->op_count(), UnitId(0));
  IdVector<SetId, std::vector<DeviceId>> devices(whole.set_bytes.size());
  IdVector<OpId, NodeId> node_of(problem.graph->op_count());
  for (NodeId node : parts.graph.nodes()) {
    const auto [of, number] = parts.part_of[node];
    if (!of.valid()) continue;
    for (OpId op : whole.ops[of]) node_of[op] = node;
    auto& held = devices[whole.set_of[of]];
    if (held.size() == number) held.push_back(placement[node]);
  }
  std::map<std::vector<std::pair<DeviceId, double>>, UnitId> known;
  IdVector<SetId, UnitId> unit_of(devices.size());
  for (SetId set : id_range<SetId>(devices.size())) {
    decide::UnitDecision decision{.replicas = replicas_of(devices[set]), .sync = sync};
    std::vector<std::pair<DeviceId, double>> key;
    for (const decide::Replica& one : decision.replicas) key.emplace_back(one.device, one.weight);
    const auto [at, is_new] = known.try_emplace(key);
    if (is_new) at->second = strategy.units.push_back(std::move(decision));
    unit_of[set] = at->second;
  }
  for (NodeId node : whole.nodes()) {
    for (OpId op : whole.ops[node]) strategy.unit_of_op[op] = unit_of[whole.set_of[node]];
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    const NodeId update = node_of[chain.ops.back()];
    const UnitId unit = strategy.unit_of_op[chain.ops.back()];
    if (sync != decide::SyncMethod::kParameterServer || strategy.units[unit].replicas.size() < 2) {
      continue;
    }
    strategy.sync.push_back({chain.parameter, sync, placement[update]});
  }
  std::ranges::sort(strategy.sync, {}, &decide::ParameterSync::parameter);
  if (!started.empty()) set_priorities(whole, parts, placement, started, strategy);
  return strategy;
}

}  // namespace heterog::search

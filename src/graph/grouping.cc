// Colocation sets by union-find, groups by breadth-first search from the heaviest sets.
#include "graph/grouping.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace heterog::graph {
namespace {

// An op that reads more parameters than this (a penalty over all weights) does not tie them
// together: their sets would swallow the model. Fused layers read at most a dozen.
constexpr std::size_t kMaxParametersOfOp = 16;

// Disjoint sets of ops; the representative is the lowest op of its set.
class Sets {
 public:
  explicit Sets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  std::uint32_t find(OpId op) {
    std::uint32_t at = op.value();
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }
  void join(OpId a, OpId b) {
    const std::uint32_t low = find(a);
    const std::uint32_t high = find(b);
    parent_[std::max(low, high)] = std::min(low, high);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

// The parameters that something touches: none, one, or several.
struct Touched {
  TensorId only;
  bool several = false;
  void add(TensorId parameter) {
    if (!parameter.valid() || several || only == parameter) return;
    several = only.valid();
    only = several ? TensorId() : parameter;
  }
  void add(const Touched& other) {
    if (other.several) *this = {TensorId(), true};
    add(other.only);
  }
};

// The parameter that a tensor is about: itself, or the one that it is the gradient or state of.
TensorId parameter_of(const ModelGraph& graph, TensorId id) {
  return graph.tensor(id).role == TensorRole::kParameter ? id : graph.tensor(id).of;
}

class Colocation {
 public:
  explicit Colocation(const ModelGraph& graph)
      : graph_(graph),
        sets_(graph.op_count()),
        placed_(graph.op_count(), false),
        reader_(graph.tensor_count()) {}

  IdVector<OpId, GroupId> run() {
    join_backward();
    join_readers();
    join_updates();
    join_loose_backward();
    join_aliases();
    join_islands();
    return numbered();
  }

 private:
  bool is_update(OpId op) const { return graph_.op(op).phase == Phase::kUpdate; }

  // Ties the op to another; from then on it has a place.
  void place(OpId op, OpId with) {
    sets_.join(op, with);
    placed_[op] = true;
  }

  // A backward op goes with the op that it differentiates. Aliases go with their base alone: tied
  // to both, they would chain the layers together.
  void join_backward() {
    for (OpId id : graph_.op_ids()) {
      const Op& op = graph_.op(id);
      if (op.alias || op.phase == Phase::kUpdate) continue;
      if (op.phase == Phase::kForward) placed_[id] = true;
      if (op.forward.valid()) place(id, op.forward);
    }
  }

  // All forward and backward ops that read a parameter, through aliases too.
  void join_readers() {
    std::vector<TensorId> read;
    for (OpId id : graph_.op_ids()) {
      if (is_update(id)) continue;
      read.clear();
      for (TensorId input : graph_.inputs(id)) {
        const TensorId root = graph_.root(input);
        if (graph_.tensor(root).role == TensorRole::kParameter) read.push_back(root);
      }
      std::ranges::sort(read);
      read.erase(std::ranges::unique(read).begin(), read.end());
      if (read.size() > kMaxParametersOfOp) continue;
      for (TensorId parameter : read) place_with(id, parameter);
    }
    // The last op of a gradient, where nothing says what it differentiates (a sum of the gradients
    // of two uses).
    for (TensorId id : graph_.tensor_ids()) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.role != TensorRole::kGradient) continue;
      const OpId maker = graph_.tensor(graph_.root(id)).producer;
      if (maker.valid() && !placed_[maker] && !is_update(maker)) place_with(maker, tensor.of);
    }
  }

  // With the first op that was tied to the parameter.
  void place_with(OpId op, TensorId parameter) {
    OpId& first = reader_[parameter];
    if (!first.valid()) first = op;
    place(op, first);
  }

  // An update op goes with the only parameter that depends on it, else with the only one that it
  // has seen; those of several parameters (the global norm, a shared factor) are sets of their own.
  void join_updates() {
    IdVector<OpId, Touched> after(graph_.op_count());
    IdVector<OpId, Touched> before(graph_.op_count());
    for (std::size_t i = graph_.op_count(); i-- > 0;) {
      const OpId id(i);
      if (!is_update(id)) continue;
      for (TensorId output : graph_.outputs(id)) {
        if (!output.valid()) continue;
        const TensorId replaced = graph_.tensor(output).replaces;
        if (replaced.valid()) after[id].add(parameter_of(graph_, replaced));
        for (OpId consumer : graph_.consumers(output)) after[id].add(after[consumer]);
      }
    }
    for (OpId id : graph_.op_ids()) {
      if (!is_update(id)) continue;
      for (TensorId input : graph_.inputs(id)) {
        before[id].add(parameter_of(graph_, input));
        const OpId producer = graph_.tensor(input).producer;
        if (producer.valid() && is_update(producer)) before[id].add(before[producer]);
      }
      const TensorId home = after[id].only.valid() ? after[id].only : before[id].only;
      placed_[id] = true;
      if (home.valid()) {
        place_with(id, home);
        continue;
      }
      for (TensorId input : graph_.inputs(id)) {  // one set for what belongs together
        const OpId producer = graph_.tensor(input).producer;
        if (producer.valid() && is_update(producer) && !after[producer].only.valid() &&
            !before[producer].only.valid()) {
          sets_.join(id, producer);
        }
      }
    }
  }

  // Backward ops of which nothing is known (a sum of gradients, the first ones) go with what makes
  // their first input, else with their first reader.
  void join_loose_backward() {
    for (OpId id : graph_.op_ids()) {
      if (placed_[id] || graph_.op(id).alias) continue;
      for (TensorId input : graph_.inputs(id)) {
        const OpId producer = graph_.tensor(graph_.root(input)).producer;
        if (!producer.valid() || !placed_[producer]) continue;
        place(id, producer);
        break;
      }
    }
    for (std::size_t i = graph_.op_count(); i-- > 0;) {
      const OpId id(i);
      if (!placed_[id] && !graph_.op(id).alias) place_with_first_reader(id);
    }
  }

  void place_with_first_reader(OpId id) {
    OpId first;
    for (TensorId output : graph_.outputs(id)) {
      if (!output.valid() || graph_.consumers(output).empty()) continue;
      if (!first.valid() || graph_.consumers(output)[0] < first)
        first = graph_.consumers(output)[0];
    }
    if (first.valid()) place(id, first);
  }

  // In reverse, so that a chain of aliases of an input follows its end.
  void join_aliases() {
    for (std::size_t i = graph_.op_count(); i-- > 0;) {
      const OpId id(i);
      if (!graph_.op(id).alias || is_update(id)) continue;
      const OpId maker = graph_.tensor(graph_.root(graph_.inputs(id)[0])).producer;
      if (maker.valid()) {
        place(id, maker);
      } else if (!placed_[id]) {
        place_with_first_reader(id);
      }
    }
  }

  // An op that reads and feeds no other (a counter of steps kept in a buffer) goes with the op of
  // its module that comes last before it.
  void join_islands() {
    std::unordered_map<std::uint32_t, OpId> last_of_scope;
    for (OpId id : graph_.op_ids()) {
      const std::uint32_t scope = graph_.op(id).scope;
      if (is_update(id) || scope == 0) continue;
      if (!is_island(id)) {
        last_of_scope[scope] = id;
      } else if (const auto found = last_of_scope.find(scope); found != last_of_scope.end()) {
        sets_.join(id, found->second);
      }
    }
  }

  bool is_island(OpId id) const {
    for (TensorId input : graph_.inputs(id)) {
      if (graph_.tensor(input).role != TensorRole::kBuffer) return false;
    }
    return std::ranges::all_of(graph_.outputs(id), [&](TensorId output) {
      return !output.valid() || graph_.consumers(output).empty();
    });
  }

  IdVector<OpId, GroupId> numbered() {
    IdVector<OpId, GroupId> result(graph_.op_count());
    std::size_t count = 0;
    for (OpId id : graph_.op_ids()) {
      const OpId first(sets_.find(id));  // not after id
      result[id] = first == id ? GroupId(count++) : result[first];
    }
    return result;
  }

  const ModelGraph& graph_;
  Sets sets_;
  IdVector<OpId, char> placed_;
  IdVector<TensorId, OpId> reader_;  // parameters: the first op tied to it
};

// Neighbours of every set in the undirected quotient graph; edges may repeat.
Csr<GroupId, GroupId> neighbours_of(const ModelGraph& graph, const IdVector<OpId, GroupId>& set_of,
                                    std::size_t count) {
  std::vector<std::pair<GroupId, GroupId>> edges;
  for (OpId id : graph.op_ids()) {
    for (TensorId output : graph.outputs(id)) {
      if (!output.valid()) continue;
      for (OpId consumer : graph.consumers(output)) {
        const GroupId from = set_of[id];
        const GroupId to = set_of[consumer];
        if (from == to) continue;
        edges.emplace_back(from, to);
        edges.emplace_back(to, from);
      }
    }
  }
  return Csr<GroupId, GroupId>::from_pairs(count, edges);
}

std::size_t count_of(const IdVector<OpId, GroupId>& set_of) {
  std::size_t count = 0;
  for (GroupId set : set_of) count = std::max<std::size_t>(count, set.value() + std::size_t{1});
  return count;
}

// For every set, the seed that it joins. `seeds`: heaviest first. A queue that starts in that order
// stays, within each distance, in the order of the seeds, so the first to reach a set is the
// heaviest of the nearest.
IdVector<GroupId, GroupId> nearest_seeds(const Csr<GroupId, GroupId>& neighbours,
                                         const std::vector<GroupId>& seeds) {
  IdVector<GroupId, GroupId> seed_of(neighbours.rows());
  std::vector<GroupId> queue = seeds;
  queue.reserve(neighbours.rows());
  for (GroupId seed : seeds) seed_of[seed] = seed;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const GroupId set = queue[head];
    for (GroupId neighbour : neighbours[set]) {
      if (seed_of[neighbour].valid()) continue;
      seed_of[neighbour] = seed_of[set];
      queue.push_back(neighbour);
    }
  }
  for (GroupId& seed : seed_of) {  // out of reach of every seed
    if (!seed.valid()) seed = seeds[0];
  }
  return seed_of;
}

// Renumbers groups by their first forward op; those without one follow, by their first op.
Grouping numbered_groups(const ModelGraph& graph, const IdVector<OpId, GroupId>& group_of,
                         std::size_t count) {
  std::vector<GroupId> order;
  IdVector<GroupId, GroupId> renamed(count);
  for (const bool any_phase : {false, true}) {
    for (OpId id : graph.op_ids()) {
      GroupId& name = renamed[group_of[id]];
      if (name.valid() || (!any_phase && graph.op(id).phase != Phase::kForward)) continue;
      name = GroupId(order.size());
      order.push_back(group_of[id]);
    }
  }
  Grouping grouping;
  grouping.group_of.resize(graph.op_count());
  std::vector<std::pair<GroupId, OpId>> members;
  members.reserve(graph.op_count());
  for (OpId id : graph.op_ids()) {
    grouping.group_of[id] = renamed[group_of[id]];
    members.emplace_back(grouping.group_of[id], id);
  }
  grouping.members = Csr<GroupId, OpId>::from_pairs(order.size(), members);
  return grouping;
}

}  // namespace

IdVector<OpId, GroupId> colocation_sets(const ModelGraph& graph) { return Colocation(graph).run(); }

Grouping group_ops(const ModelGraph& graph, std::span<const double> weights, int max_groups) {
  ENSURE(weights.size() == graph.op_count());
  ENSURE(max_groups >= 1);
  IdVector<OpId, GroupId> set_of = colocation_sets(graph);
  const std::size_t sets = count_of(set_of);
  if (sets > static_cast<std::size_t>(max_groups)) {
    IdVector<GroupId, double> set_weight(sets, 0.0);
    for (OpId id : graph.op_ids()) {
      EXPECT(std::isfinite(weights[id.value()]));
      set_weight[set_of[id]] += weights[id.value()];
    }
    std::vector<GroupId> seeds;
    for (GroupId set : id_range<GroupId>(sets)) seeds.push_back(set);
    std::ranges::stable_sort(seeds,
                             [&](GroupId a, GroupId b) { return set_weight[a] > set_weight[b]; });
    seeds.resize(static_cast<std::size_t>(max_groups));
    const auto seed_of = nearest_seeds(neighbours_of(graph, set_of, sets), seeds);
    for (GroupId& set : set_of) set = seed_of[set];
  }
  return numbered_groups(graph, set_of, sets);
}

}  // namespace heterog::graph

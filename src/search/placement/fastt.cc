// Splits along the critical path, and rounds of plan, try, learn.
#include "search/placement/fastt.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "cost/collective.h"
#include "decide/decisions.h"
#include "search/placement/list_placement.h"
#include "search/placement/node_orders.h"

namespace heterog::search {
namespace {

using decide::Strategy;
using decide::SyncMethod;

// The longest path of this placement, where transfers on a device take no time.
std::vector<NodeId> longest_path(const PlacementGraph& graph, const Placement& placement) {
  const cluster::Cluster& cluster = *graph.problem->cluster;
  IdVector<NodeId, Nanoseconds> level(graph.size(), 0);
  IdVector<NodeId, NodeId> next(graph.size());
  NodeId longest;
  for (std::size_t i = graph.size(); i-- > 0;) {
    const NodeId node(i);
    for (const Edge& edge : graph.outputs[node]) {
      const DeviceId from = placement[node], to = placement[edge.node];
      const Nanoseconds behind =
          level[edge.node] + (from == to ? 0 : transfer_time(graph, from, to, edge.bytes));
      if (next[node].valid() && behind <= level[node]) continue;
      level[node] = behind;
      next[node] = edge.node;
    }
    level[node] += graph.duration(node, cluster.device(placement[node]).type);
    if (!longest.valid() || level[node] >= level[longest]) longest = node;
  }
  std::vector<NodeId> path;
  for (NodeId node = longest; node.valid(); node = next[node]) path.push_back(node);
  return path;
}

SplitPlacement placed_in(const PlacementGraph& whole, Parts parts,
                         const std::vector<Bytes>& capacity, const CostBook& costs) {
  SplitPlacement made{.parts = std::move(parts), .graph = {}, .placement = {}, .started = {}};
  made.graph = in_parts(whole, made.parts);
  costs.apply(made.graph);
  const Estimate estimate = dpos(made.graph.graph, capacity, {});
  made.placement = estimate.placement();
  made.started = estimate.started();
  made.finish = estimate.finish();
  return made;
}

// By how much a set is split at once.
std::vector<std::int64_t> factors(std::int64_t devices) {
  std::vector<std::int64_t> found;
  for (std::int64_t factor = 2; factor < devices; factor *= 2) found.push_back(factor);
  if (devices > 1) found.push_back(devices);
  return found;
}

// Sets of the path, that of the longest node first.
std::vector<SetId> sets_of_path(const PlacementGraph& whole, const SplitPlacement& placed) {
  const cluster::Cluster& cluster = *whole.problem->cluster;
  std::vector<std::pair<Nanoseconds, SetId>> found;
  for (NodeId node : longest_path(placed.graph.graph, placed.placement)) {
    const NodeId of = placed.graph.part_of[node].whole;
    if (!of.valid()) continue;
    const DeviceTypeId type = cluster.device(placed.placement[node]).type;
    found.emplace_back(placed.graph.graph.duration(node, type), whole.set_of[of]);
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &std::pair<Nanoseconds, SetId>::first);
  std::vector<SetId> sets;
  for (const auto& [time, set] : found) {
    if (std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
  }
  return sets;
}

struct FasttOptions : SplitOptions {
  std::int64_t rounds = 16;  // of the loop, at the most
  Backward backward = Backward::kWithForward;
};

struct Tried {
  Strategy strategy;
  Measured measured;
};

// At its best order and way to aggregate gradients.
Tried tried_out(const PlacementGraph& whole, const SplitPlacement& placed,
                BatchEvaluator& evaluator) {
  std::vector<Strategy> strategies;
  for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
    if (!placed.started.empty()) {
      strategies.push_back(
          placed_parts(whole, placed.graph, placed.placement, placed.started, sync));
    }
    Strategy plain = placed_parts(whole, placed.graph, placed.placement, {}, sync);
    // The default says nothing of servers.
    if (placed.started.empty()) plain.sync.clear();
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      plain.order = order;
      strategies.push_back(plain);
    }
  }
  const std::vector<Measured> measured = evaluator.evaluate(strategies);
  std::size_t best = 0;
  for (std::size_t i = 1; i < strategies.size(); ++i) {
    if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
  }
  return {std::move(strategies[best]), measured[best]};
}

// What a step was short of, each device has less for.
void take_away(const cost::Problem& problem, const Measured& measured,
               std::vector<Bytes>& capacity) {
  for (DeviceId device : problem.cluster->device_ids()) {
    const Bytes has = problem.cluster->device(device).memory_bytes -
                      problem.cluster->type_of(device).reserve_bytes;
    capacity[device.value()] -= std::max<Bytes>(0, measured.peak_bytes[device] - has);
  }
}

class Fastt final : public Planner {
 public:
  explicit Fastt(const FasttOptions& options) : options_(options) {}

  PlannerResult plan(PlannerContext& context) const override {
    // All that it knows of costs is from trials.
    const cost::Problem& problem = context.tried().problem();
    const PlacementGraph whole = make_placement_graph(problem, options_.backward);
    const auto may = sets_that_split(whole);
    std::vector<Bytes> capacity = capacities(whole);
    BatchEvaluator evaluator(context.tried(), context.budget);
    CostBook costs(whole);

    SplitPlacement first = on_all_devices(whole, may);
    Tried active = tried_out(whole, first, evaluator);
    if (!active.measured.evaluation.feasible && !evaluator.spent()) {
      first = on_one_device_each(whole, capacity);
      Tried other = tried_out(whole, first, evaluator);
      if (better(other.measured.evaluation, active.measured.evaluation)) active = std::move(other);
    }
    if (active.measured.evaluation.feasible) costs.observe(first.graph, first.placement);

    std::int64_t rounds = 0, activated = 0, splits = 0;
    // Every plan is tried, as in FastT's first steps: what it is believed to take may be wrong.
    while (rounds < options_.rounds && !evaluator.spent()) {
      const SplitPlacement next =
          split_placement(whole, first.parts, may, capacity, costs, options_);
      ++rounds;
      Tried one = tried_out(whole, next, evaluator);
      bool learned = true;
      if (one.measured.evaluation.feasible) {
        learned = costs.observe(next.graph, next.placement);
      } else {
        take_away(problem, one.measured, capacity);
      }
      if (better(one.measured.evaluation, active.measured.evaluation)) {
        active = std::move(one);
        splits = next.splits;
        ++activated;
      }
      if (!learned) break;  // the next plan would be this one again
    }
    PlannerResult result{.strategy = std::move(active.strategy),
                         .evaluation = active.measured.evaluation};
    result.evaluations = evaluator.evaluations();
    result.refused = evaluator.refused();
    result.found_by =
        fmt::format("fastt: {} of {} rounds gained, {} splits", activated, rounds, splits);
    return result;
  }

 private:
  // The first part of every set on the first device, and so on: plain data parallelism.
  static SplitPlacement on_all_devices(const PlacementGraph& whole,
                                       const IdVector<SetId, std::uint8_t>& may) {
    const cost::Problem& problem = *whole.problem;
    const auto devices = static_cast<std::int64_t>(problem.cluster->device_count());
    SplitPlacement made{
        .parts = Parts(whole.set_bytes.size(), 1), .graph = {}, .placement = {}, .started = {}};
    for (SetId set : id_range<SetId>(made.parts.size())) {
      if (may[set]) made.parts[set] = std::min(devices, problem.batch);
    }
    made.graph = in_parts(whole, made.parts);
    for (const PartedGraph::Part& part : made.graph.part_of) {
      made.placement.push_back(DeviceId(part.number));
    }
    return made;
  }

  static SplitPlacement on_one_device_each(const PlacementGraph& whole,
                                           const std::vector<Bytes>& capacity) {
    SplitPlacement made{
        .parts = Parts(whole.set_bytes.size(), 1), .graph = {}, .placement = {}, .started = {}};
    made.graph = in_parts(whole, made.parts);
    const PlacementGraph& graph = made.graph.graph;
    made.placement = filled(graph, capacity, breadth_first(graph)).placement();
    return made;
  }

  FasttOptions options_;
};

constexpr std::array<std::string_view, 2> kBackwardWords = {"anywhere", "with-forward"};
constexpr std::array<Field<FasttOptions>, 3> kFasttFields = {
    {{"rounds", "plans that are made, tried and learned from, at the most",
      IntegerField<FasttOptions>{&FasttOptions::rounds, {1, 1000}}},
     {"operators", "of the critical path that are tried to be split, a round",
      IntegerField<FasttOptions>{&FasttOptions::operators, {0, 1000}}},
     {"backward", "where operators of the backward pass may be",
      choice<FasttOptions, &FasttOptions::backward>(kBackwardWords)}}};

}  // namespace

CostBook::CostBook(const PlacementGraph& whole)
    : whole_(whole),
      known_(whole.durations.size(), 0),
      lines_(whole.problem->cluster->device_count()),
      pair_known_(whole.problem->cluster->device_count() * whole.problem->cluster->device_count(),
                  0) {}

bool CostBook::observe(const PartedGraph& graph, const Placement& placement) {
  const cluster::Cluster& cluster = *whole_.problem->cluster;
  bool is_new = false;
  for (NodeId node : graph.graph.nodes()) {
    const NodeId of = graph.part_of[node].whole;
    const DeviceId here = placement[node];
    if (of.valid()) {
      const std::size_t at = of.value() * cluster.type_count() + cluster.device(here).type.value();
      if (!std::exchange(known_[at], 1)) is_new = true;
    }
    for (const Edge& edge : graph.graph.inputs[node]) {
      const DeviceId from = placement[edge.node];
      if (from == here) continue;
      lines_.observe(from, here, edge.bytes,
                     cost::transfer_duration(cluster, cluster.route(from, here), edge.bytes));
      if (!std::exchange(pair_known_[from.value() * cluster.device_count() + here.value()], 1)) {
        is_new = true;
      }
    }
  }
  return is_new;
}

void CostBook::apply(PartedGraph& graph) const {
  graph.graph.transfers = &lines_;
  const std::size_t types = whole_.problem->cluster->type_count();
  for (NodeId node : graph.graph.nodes()) {
    const NodeId of = graph.part_of[node].whole;
    for (std::size_t type = 0; type < types && of.valid(); ++type) {
      if (!known_[of.value() * types + type])
        graph.graph.durations[node.value() * types + type] = 0;
    }
  }
}

SplitPlacement split_placement(const PlacementGraph& whole, const Parts& parts,
                               const IdVector<SetId, std::uint8_t>& may,
                               const std::vector<Bytes>& capacity, const CostBook& costs,
                               const SplitOptions& options) {
  const std::int64_t batch = whole.problem->batch;
  SplitPlacement best = placed_in(whole, parts, capacity, costs);
  std::int64_t tried = 0;
  for (SetId set : sets_of_path(whole, best)) {
    if (!may[set] || best.parts[set] * 2 > batch) continue;
    if (tried++ == options.operators) break;
    bool gains = false;
    const Parts before = best.parts;
    const std::int64_t splits = best.splits + 1;
    for (std::int64_t factor :
         factors(static_cast<std::int64_t>(whole.problem->cluster->device_count()))) {
      Parts next = before;
      next[set] *= factor;
      if (next[set] > batch) break;
      SplitPlacement one = placed_in(whole, std::move(next), capacity, costs);
      if (one.finish >= best.finish) continue;
      best = std::move(one);
      best.splits = splits;
      gains = true;
    }
    if (!gains) break;
  }
  return best;
}

PlannerEntry fastt_entry() {
  return planner_entry<FasttOptions>(
      "fastt", "FastT's loop: operators placed, ordered and split by costs that it learns",
      kFasttFields, [](const FasttOptions& options) { return std::make_unique<Fastt>(options); });
}

}  // namespace heterog::search

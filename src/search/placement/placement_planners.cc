// One row a planner, and what they share: orders, and memory that is corrected by what was
// measured.
#include "search/placement/placement_planners.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "search/placement/celeritas.h"
#include "search/placement/fastt.h"
#include "search/placement/list_placement.h"
#include "search/placement/metis.h"
#include "search/placement/node_orders.h"
#include "search/placement/sct.h"

namespace heterog::search {
namespace {

using decide::OrderPolicy;
using decide::Strategy;

struct DposPlannerOptions : PlacementOptions, DposOptions {};
struct EtfOptions : PlacementOptions {
  LinkUse links = LinkUse::kFree;
};
struct SctPlannerOptions : PlacementOptions, SctOptions {};
struct MetisPlannerOptions : PlacementOptions, MetisOptions {};
struct OrderPlaceOptions : PlacementOptions, CeleritasOptions {
  OrderPlaceOptions() {
    adjust = false;
    measures = true;
  }
};
struct CeleritasPlannerOptions : PlacementOptions, CeleritasOptions {
  CeleritasPlannerOptions() {
    corrections = 4;
    measures = true;
  }
};

// What an algorithm says: where nodes run, and in which order they start, if it says so.
struct Placed {
  Placement placement;
  std::vector<NodeId> started{};
};
using Place = std::function<Placed(const PlacementGraph&, const std::vector<Bytes>& capacity)>;

Placed placed_by(const Estimate& estimate) { return {estimate.placement(), estimate.started()}; }

std::vector<Strategy> orders_of(const PlacementGraph& graph, const Placed& placed_nodes,
                                PlacementOrder order) {
  const bool all = order == PlacementOrder::kBest;
  std::vector<Strategy> strategies;
  if (all || order == PlacementOrder::kOwn) {
    strategies.push_back(placed(graph, placed_nodes.placement, placed_nodes.started));
  }
  const Strategy plain = placed(graph, placed_nodes.placement, {});
  for (const auto& [named, policy] :
       {std::pair{PlacementOrder::kRank, OrderPolicy::kRank},
        std::pair{PlacementOrder::kRankQueued, OrderPolicy::kRankQueued},
        std::pair{PlacementOrder::kFifo, OrderPolicy::kFifo}}) {
    if (!all && order != named) continue;
    strategies.push_back(plain);
    strategies.back().order = policy;
  }
  return strategies;
}

class PlacementPlanner final : public Planner {
 public:
  PlacementPlanner(const PlacementOptions& options, Place place)
      : options_(options), place_(std::move(place)) {}

  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    PlacementGraph graph = make_placement_graph(problem, options_.backward);
    std::vector<Bytes> capacity = capacities(graph);
    const bool measures = options_.measures && context.trials;
    if (measures) measure_times(graph, capacity, *context.trials);
    BatchEvaluator evaluator(context.oracle, context.budget);
    PlannerResult best;
    for (std::int64_t i = 0; i <= options_.corrections; ++i) {
      if (i > 0 && evaluator.spent()) break;
      std::vector<Strategy> strategies = orders_of(graph, place_(graph, capacity), options_.order);
      const std::vector<Measured> measured = evaluator.evaluate(strategies);
      std::size_t chosen = 0;
      for (std::size_t s = 1; s < strategies.size(); ++s) {
        if (better(measured[s].evaluation, measured[chosen].evaluation)) chosen = s;
      }
      if (i == 0 || better(measured[chosen].evaluation, best.evaluation)) {
        best.strategy = std::move(strategies[chosen]);
        best.evaluation = measured[chosen].evaluation;
      }
      if (measured[chosen].evaluation.feasible) break;
      for (DeviceId device : problem.cluster->device_ids()) {
        const Bytes has = problem.cluster->device(device).memory_bytes -
                          problem.cluster->type_of(device).reserve_bytes;
        capacity[device.value()] -= std::max<Bytes>(0, measured[chosen].peak_bytes[device] - has);
      }
    }
    best.evaluations = evaluator.evaluations() + (measures ? 1 : 0);
    best.refused = evaluator.refused();
    return best;
  }

 private:
  PlacementOptions options_;
  Place place_;
};

constexpr std::array<std::string_view, 5> kOrders = {"best", "own", "rank", "rank-queued", "fifo"};
constexpr std::array<std::string_view, 2> kLinks = {"free", "queued"};
constexpr std::array<std::string_view, 2> kBackward = {"anywhere", "with-forward"};
constexpr std::array<std::string_view, 2> kNoYes = {"no", "yes"};

template <class Options>
constexpr Field<Options> order_field() {
  return {"order", "in which tasks start", choice<Options, &Options::order>(kOrders)};
}
template <class Options>
constexpr Field<Options> backward_field() {
  return {"backward", "where operators of the backward pass may be",
          choice<Options, &Options::backward>(kBackward)};
}
template <class Options>
constexpr Field<Options> corrections_field() {
  return {"corrections",
          "times that a placement which does not fit is made anew, with as much less memory as it "
          "was short of",
          IntegerField<Options>{&Options::corrections, {0, 100}}};
}
template <class Options>
constexpr Field<Options> links_field() {
  return {"links", "what is assumed of links: free, as in the paper, or one transfer after another",
          choice<Options, &Options::links>(kLinks)};
}
template <class Options>
constexpr std::array<Field<Options>, 5> fusion_fields() {
  return {{order_field<Options>(),
           backward_field<Options>(),
           corrections_field<Options>(),
           {"range", "operators that are fused into one cluster, at the most",
            IntegerField<Options>{&Options::range, {1, 100'000}}},
           {"memory", "of a device's memory that a cluster takes, at the most",
            NumberField<Options>{&Options::memory_fraction, {0.001, 1}}}}};
}

constexpr std::array<Field<PlacementOptions>, 3> kPlainFields = {
    {order_field<PlacementOptions>(), backward_field<PlacementOptions>(),
     corrections_field<PlacementOptions>()}};
constexpr std::array<Field<DposPlannerOptions>, 5> kDposFields = {
    {order_field<DposPlannerOptions>(),
     backward_field<DposPlannerOptions>(),
     corrections_field<DposPlannerOptions>(),
     links_field<DposPlannerOptions>(),
     {"critical-device", "whether the critical path has devices of its own, as in the paper",
      choice<DposPlannerOptions, &DposPlannerOptions::critical_device>(kNoYes)}}};
constexpr std::array<Field<EtfOptions>, 4> kEtfFields = {
    {order_field<EtfOptions>(), backward_field<EtfOptions>(), corrections_field<EtfOptions>(),
     links_field<EtfOptions>()}};
constexpr std::array<Field<SctPlannerOptions>, 6> kSctFields = {
    {order_field<SctPlannerOptions>(),
     backward_field<SctPlannerOptions>(),
     corrections_field<SctPlannerOptions>(),
     links_field<SctPlannerOptions>(),
     {"threshold", "of the linear program's x, below which a child is a favourite",
      NumberField<SctPlannerOptions>{&SctPlannerOptions::threshold, {0, 1}}},
     {"pivots", "of the simplex, at the most; beyond, there is no plan",
      IntegerField<SctPlannerOptions>{&SctPlannerOptions::pivots, {1, 1'000'000'000}}}}};
constexpr std::array<Field<MetisPlannerOptions>, 5> kMetisFields = {
    {order_field<MetisPlannerOptions>(),
     backward_field<MetisPlannerOptions>(),
     corrections_field<MetisPlannerOptions>(),
     {"imbalance", "by how much a device's part may be too large, in thousandths",
      IntegerField<MetisPlannerOptions>{&MetisPlannerOptions::imbalance, {1, 100'000}}},
     {"seed", "of METIS",
      IntegerField<MetisPlannerOptions>{&MetisPlannerOptions::seed, {0, 1'000'000'000}}}}};
constexpr auto kOrderPlaceFields = fusion_fields<OrderPlaceOptions>();
constexpr auto kCeleritasFields = fusion_fields<CeleritasPlannerOptions>();

template <class Options>
PlannerEntry entry(
    std::string_view name, std::string_view one_line, std::span<const Field<Options>> fields,
    std::function<Placed(const PlacementGraph&, const std::vector<Bytes>& capacity, const Options&)>
        place) {
  return planner_entry<Options>(
      name, one_line, fields, [place = std::move(place)](const Options& options) {
        return std::make_unique<PlacementPlanner>(
            options,
            [place, options](const PlacementGraph& graph, const std::vector<Bytes>& bytes) {
              return place(graph, bytes, options);
            });
      });
}

// Every device an equal part of what all nodes keep, and as much more as the largest node keeps, as
// far as it has that (Baechi's m-TOPO).
std::vector<Bytes> balanced(const PlacementGraph& graph, std::vector<Bytes> capacity) {
  Bytes all = 0, largest = 0;
  for (Bytes of_set : graph.set_bytes) {
    all += of_set;
    largest = std::max(largest, of_set);
  }
  for (Bytes kept : graph.kept) {
    all += kept;
    largest = std::max(largest, kept);
  }
  for (Bytes& bytes : capacity) {
    bytes = std::min(bytes, all / static_cast<Bytes>(capacity.size()) + largest);
  }
  return capacity;
}

}  // namespace

std::vector<PlannerEntry> placement_entries() {
  std::vector<PlannerEntry> entries;
  entries.push_back(entry<DposPlannerOptions>(
      "fastt-dpos", "FastT's list scheduling of single operators", kDposFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity,
         const DposPlannerOptions& options) { return placed_by(dpos(graph, capacity, options)); }));
  entries.push_back(fastt_entry());
  entries.push_back(entry<PlacementOptions>(
      "m-topo", "Baechi's: operators in breadth-first order, equal memory", kPlainFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity, const PlacementOptions&) {
        return Placed{filled(graph, balanced(graph, capacity), breadth_first(graph)).placement()};
      }));
  entries.push_back(entry<EtfOptions>(
      "m-etf", "Baechi's: the operator that can start first, where it can", kEtfFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity,
         const EtfOptions& options) {
        return placed_by(earliest_start_first(graph, capacity, options.links));
      }));
  entries.push_back(entry<SctPlannerOptions>(
      "m-sct", "Baechi's: as m-etf, with favourite children by a linear program (needs CLP)",
      kSctFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity,
         const SctPlannerOptions& options) {
        return placed_by(
            favourites_first(graph, capacity, favourites(graph, options), options.links));
      }));
  entries.push_back(entry<MetisPlannerOptions>(
      "metis", "a partition of least bytes between devices (needs METIS)", kMetisFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>&,
         const MetisPlannerOptions& options) { return Placed{partitioned(graph, options)}; }));
  entries.push_back(entry<PlacementOptions>(
      "dfs-topo", "device after device filled in depth-first order", kPlainFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity, const PlacementOptions&) {
        return Placed{filled(graph, capacity, depth_first(graph)).placement()};
      }));
  entries.push_back(entry<OrderPlaceOptions>(
      "order-place", "Celeritas' clusters, device after device filled with them", kOrderPlaceFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity,
         const OrderPlaceOptions& options) {
        return Placed{celeritas(graph, capacity, options)};
      }));
  entries.push_back(entry<CeleritasPlannerOptions>(
      "celeritas", "Celeritas' clusters, each where it can start early enough", kCeleritasFields,
      [](const PlacementGraph& graph, const std::vector<Bytes>& capacity,
         const CeleritasPlannerOptions& options) {
        return Placed{celeritas(graph, capacity, options)};
      }));
  return entries;
}

}  // namespace heterog::search

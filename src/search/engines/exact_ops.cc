// Placements counted up unit by unit, orders node by node.
#include "search/engines/exact_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "search/pipeline/chain.h"
#include "search/placement/placement_graph.h"
#include "search/placement/transfer_lines.h"

namespace heterog::search {
namespace {

constexpr std::size_t kMostSets = 12;

class OpsSpace {
 public:
  OpsSpace(BestSoFar& best, std::size_t units, ExactOrders orders)
      : best_(best),
        orders_(orders),
        graph_(make_placement_graph(best.problem(), Backward::kWithForward)),
        unit_of_(graph_.size(), 0),
        placement_(graph_.size(), DeviceId(0)) {
    units_ = graph_.set_bytes.size();
    sets_ = units_ <= kMostSets;
    if (sets_) {
      for (NodeId node : graph_.nodes()) unit_of_[node] = graph_.set_of[node].value();
    } else {
      const Chain chain = make_chain(best.problem(), units);
      units_ = chain.layers.size();
      for (NodeId node : graph_.nodes()) unit_of_[node] = chain.layer_of[graph_.ops[node].back()];
    }
    weigh();
    for (NodeId node : graph_.nodes()) {
      if (is_update(graph_, node)) updates_.push_back(node);
    }
    chains_ = IdVector<NodeId, Nanoseconds>(graph_.size(), 0);
    on_.assign(devices(), 0);
  }

  std::size_t devices() const { return best_.problem().cluster->device_count(); }
  double placements() const {
    return std::pow(static_cast<double>(devices()), static_cast<double>(units_));
  }
  std::string units_text() const {
    return fmt::format("{} {}", units_, sets_ ? "sets of operators" : "stretches of layers");
  }
  std::string text() const {
    std::string text = fmt::format("{:.0f} placements of {}", placements(), units_text());
    if (orders_ == ExactOrders::kRank) return text + " by rank";
    return text + fmt::format(" by rank and in all orders ({} tried)", orders_tried_);
  }

  // By rank first: what these take cuts most orders off.
  void search() {
    branch(0, std::vector<Nanoseconds>(devices(), 0));
    best_.flush();
    if (orders_ == ExactOrders::kRank) return;
    in_order_ = true;
    branch(0, std::vector<Nanoseconds>(devices(), 0));
    best_.flush();
  }

 private:
  // At the least. Updates of several parameters may be one call, so they count nothing.
  Nanoseconds least(NodeId node, DeviceId device) const {
    if (is_update(graph_, node)) return 0;
    return graph_.duration(node, best_.problem().cluster->device(device).type);
  }

  void weigh() {
    const cluster::Cluster& cluster = *best_.problem().cluster;
    loads_.assign(units_, std::vector<Nanoseconds>(devices(), 0));
    for (NodeId node : graph_.nodes()) {
      for (DeviceId device : cluster.device_ids()) {
        loads_[unit_of_[node]][device.value()] += least(node, device);
      }
    }
    rest_.assign(units_ + 1, 0);
    for (std::size_t unit = units_; unit-- > 0;) {
      rest_[unit] = rest_[unit + 1] + std::ranges::min(loads_[unit]);
    }
  }

  void branch(std::size_t unit, const std::vector<Nanoseconds>& busy) {
    best_.step();
    if (best_.stops()) return;
    Nanoseconds together = rest_[unit];
    for (Nanoseconds one : busy) together += one;
    const auto count = static_cast<Nanoseconds>(busy.size());
    if (best_.excludes(std::max(std::ranges::max(busy), together / count))) return;
    if (unit == units_) return ask();
    for (DeviceId device : best_.problem().cluster->device_ids()) {
      chosen_.push_back(device);
      std::vector<Nanoseconds> with = busy;
      with[device.value()] += loads_[unit][device.value()];
      branch(unit + 1, with);
      chosen_.pop_back();
    }
  }

  void ask() {
    for (NodeId node : graph_.nodes()) placement_[node] = chosen_[unit_of_[node]];
    if (!in_order_) return best_.ask(placed(graph_, placement_, {}));
    // On one device every order takes as long.
    if (std::ranges::count(chosen_, chosen_.front()) == std::ssize(chosen_)) return;
    IdVector<NodeId, std::size_t> missing(graph_.size());
    on_.assign(devices(), 0);
    for (NodeId node : graph_.nodes()) {
      missing[node] = graph_.inputs[node].size();
      on_[placement_[node].value()] += least(node, placement_[node]);
    }
    for (std::size_t i = graph_.size(); i-- > 0;) {
      const NodeId node(i);
      chains_[node] = 0;
      for (const Edge& edge : graph_.outputs[node]) {
        const Nanoseconds sent = sending(node, edge);
        chains_[node] = std::max(
            chains_[node], sent + least(edge.node, placement_[edge.node]) + chains_[edge.node]);
      }
    }
    std::vector<NodeId> started;
    IdVector<NodeId, Nanoseconds> ends(graph_.size(), 0);
    order(started, missing, ends, std::vector<Nanoseconds>(devices(), 0));
  }

  Nanoseconds sending(NodeId from, const Edge& edge) const {
    const DeviceId here = placement_[from], there = placement_[edge.node];
    return here == there ? 0 : transfer_time(graph_, here, there, edge.bytes);
  }

  bool reads(NodeId reader, NodeId producer) const {
    return std::ranges::any_of(graph_.inputs[reader],
                               [&](const Edge& edge) { return edge.node == producer; });
  }

  // Of sequences that only differ in neighbours which might as well be exchanged, the one in which
  // these ascend. None is followed that cannot be better even where links are free: by what the
  // node has behind it, or by what its device has still to do. A device that takes another node
  // meanwhile follows another sequence.
  void order(std::vector<NodeId>& started, IdVector<NodeId, std::size_t>& missing,
             IdVector<NodeId, Nanoseconds>& ends, const std::vector<Nanoseconds>& free_at) {
    best_.step();
    if (best_.stops()) return;
    if (started.size() == graph_.size() - updates_.size()) {
      ++orders_tried_;
      std::vector<NodeId> all = started;
      all.insert(all.end(), updates_.begin(), updates_.end());
      return best_.ask(placed(graph_, placement_, all));
    }
    constexpr std::size_t kStarted = std::numeric_limits<std::size_t>::max();
    for (NodeId node : graph_.nodes()) {
      if (missing[node] != 0 || is_update(graph_, node)) continue;
      const bool apart = !started.empty() && placement_[started.back()] != placement_[node] &&
                         !reads(node, started.back());
      if (apart && node < started.back()) continue;
      const DeviceId device = placement_[node];
      Nanoseconds begin = free_at[device.value()];
      for (const Edge& edge : graph_.inputs[node]) {
        begin =
            std::max(begin, ends[edge.node] + sending(edge.node, {node, edge.value, edge.bytes}));
      }
      const Nanoseconds left = on_[device.value()];
      const Nanoseconds takes = least(node, device);
      if (best_.excludes(std::max(begin + takes + chains_[node], begin + left))) continue;
      missing[node] = kStarted;
      for (const Edge& edge : graph_.outputs[node]) --missing[edge.node];
      started.push_back(node);
      ends[node] = begin + takes;
      on_[device.value()] -= takes;
      std::vector<Nanoseconds> after = free_at;
      after[device.value()] = ends[node];
      order(started, missing, ends, after);
      on_[device.value()] = left;
      started.pop_back();
      for (const Edge& edge : graph_.outputs[node]) ++missing[edge.node];
      missing[node] = 0;
    }
  }

  BestSoFar& best_;
  ExactOrders orders_;
  PlacementGraph graph_;
  IdVector<NodeId, std::size_t> unit_of_;
  std::size_t units_ = 0;
  bool sets_ = true;
  std::vector<std::vector<Nanoseconds>> loads_;  // [unit][device]
  std::vector<Nanoseconds> rest_;                // at the least, of each unit and all behind it
  std::vector<DeviceId> chosen_;
  Placement placement_;
  bool in_order_ = false;
  std::vector<NodeId> updates_;           // last in every order
  IdVector<NodeId, Nanoseconds> chains_;  // the longest path behind each node, without itself
  std::vector<Nanoseconds> on_;           // of each device: what it has still to compute
  std::int64_t orders_tried_ = 0;
};

}  // namespace

std::string try_all_ops(BestSoFar& best, std::size_t units, ExactOrders orders) {
  OpsSpace space(best, units, orders);
  VALIDATE(space.placements() <= static_cast<double>(kMostPlacements),
           "exact: {} on {} devices have {:.0f} placements; expected at most {}",
           space.units_text(), space.devices(), space.placements(), kMostPlacements);
  space.search();
  return space.text();
}

}  // namespace heterog::search

// Factors by hash of what they are for.
#include "cost/hidden.h"

#include <bit>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "base/hash.h"
#include "base/rng.h"
#include "cost/cost_model.h"

namespace heterog::cost {
namespace {

// A standard normal number for a key (Box and Muller 1958).
double normal_of(std::uint64_t seed, const Hasher& key) {
  Rng rng = Rng(seed).split(key.value());
  const double u = 1 - rng.uniform(), v = rng.uniform();  // u in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

std::unique_ptr<const Problem> hidden_problem(const Problem& believed, const HiddenCosts& hidden) {
  const graph::ModelGraph& graph = *believed.graph;
  const cluster::Cluster& cluster = *believed.cluster;
  const double half = hidden.spread / std::numbers::sqrt2;
  const auto factor = [&](OpId op, DeviceTypeId type) {
    if (graph.op(op).alias) return 1.0;
    const OpWork work = op_work(graph, op, believed.batch);
    Hasher of_class, of_work;
    of_class.add("class");
    of_class.add(cluster::op_class_name(work.op_class));
    of_class.add(cluster.type(type).name);
    of_work.add("work");
    of_work.add(graph.type_name(op));
    of_work.add(std::bit_cast<std::uint64_t>(work.flop));
    of_work.add(static_cast<std::uint64_t>(work.bytes));
    of_work.add(cluster.type(type).name);
    return std::exp(half * (normal_of(hidden.seed, of_class) + normal_of(hidden.seed, of_work)));
  };
  IdVector<LinkId, double> links;
  for (LinkId link : id_range<LinkId>(cluster.link_count())) {
    Hasher key;
    key.add("link");
    if (hidden.links_by_kind) {
      key.add(std::bit_cast<std::uint64_t>(cluster.link(link).bytes_per_second));
    } else {
      key.add(cluster.link(link).name);
    }
    links.push_back(std::exp(hidden.spread * normal_of(hidden.seed, key)));
  }
  auto made = std::make_unique<Problem>(believed);
  made->cluster =
      std::make_shared<const cluster::Cluster>(cluster::with_scaled_links(cluster, links));
  made->costs = scaled(believed.costs, cluster, factor);
  return made;
}

}  // namespace heterog::cost

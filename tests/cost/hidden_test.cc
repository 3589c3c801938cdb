// Factors of hidden costs.
#include "cost/hidden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "cluster/cluster_io.h"
#include "graph/graph_io.h"

namespace heterog::cost {
namespace {

std::unique_ptr<const Problem> believed_problem() {
  return make_problem(std::make_shared<const graph::ModelGraph>(
                          graph::read_graph("models/transformer6-tiny.json.gz")),
                      std::make_shared<const cluster::Cluster>(
                          cluster::load_cluster("configs/clusters/heterog-8gpu.json")),
                      CalibratedModel(), 24);
}

TEST(Hidden, OnlyTimesAndBandwidthsChange) {
  const auto believed = believed_problem();
  const auto hidden = hidden_problem(*believed, {.seed = 7});
  EXPECT_EQ(hidden->graph, believed->graph);
  EXPECT_EQ(hidden->grouping.group_of, believed->grouping.group_of);
  EXPECT_EQ(hidden->proportional, believed->proportional);
  EXPECT_EQ(hidden->cluster->hash(), believed->cluster->hash());
  for (DeviceId from : believed->cluster->device_ids()) {
    for (DeviceId to : believed->cluster->device_ids()) {
      if (from == to) continue;
      const auto &route = hidden->cluster->route(from, to),
                 &before = believed->cluster->route(from, to);
      EXPECT_EQ(std::vector(route.links.begin(), route.links.end()),
                std::vector(before.links.begin(), before.links.end()));
      EXPECT_NE(route.links.data(), before.links.data());
      EXPECT_EQ(route.latency, before.latency);
    }
  }
  for (OpId op : believed->graph->op_ids()) {
    EXPECT_EQ(hidden->costs.workspace_bytes(op, DeviceTypeId(0), 24),
              believed->costs.workspace_bytes(op, DeviceTypeId(0), 24));
  }
}

// ln(hidden / believed) of an op, by a count of samples.
double factor(const Problem& believed, const Problem& hidden, OpId op, DeviceTypeId type,
              std::int64_t samples = 24) {
  return std::log(static_cast<double>(hidden.costs.duration(op, type, samples)) /
                  static_cast<double>(believed.costs.duration(op, type, samples)));
}

TEST(Hidden, EqualOpsHaveOneFactorATypeWhateverTheirSamples) {
  const auto believed = believed_problem();
  const auto hidden = hidden_problem(*believed, {.seed = 7});
  std::map<std::tuple<std::string, double, Bytes, std::size_t>, double> known;
  std::set<double> distinct;
  std::int64_t equal = 0;
  for (OpId op : believed->graph->op_ids()) {
    if (believed->graph->op(op).alias) continue;
    const OpWork work = op_work(*believed->graph, op, 24);
    for (DeviceTypeId type : id_range<DeviceTypeId>(believed->cluster->type_count())) {
      const double here = factor(*believed, *hidden, op, type);
      EXPECT_NEAR(here, factor(*believed, *hidden, op, type, 3), 2e-3);  // whole nanoseconds
      const auto [at, is_new] = known.try_emplace(
          {std::string(believed->graph->type_name(op)), work.flop, work.bytes, type.value()}, here);
      if (is_new) distinct.insert(std::round(1e6 * here));
      EXPECT_NEAR(here, at->second, 2e-3);
      equal += !is_new;
    }
  }
  EXPECT_GT(equal, 100);
  EXPECT_GT(distinct.size(), known.size() * 9 / 10);
}

TEST(Hidden, LinksOfOneBandwidthCanHaveOneFactor) {
  const auto believed = believed_problem();
  const auto each = hidden_problem(*believed, {.seed = 7});
  const auto by_kind = hidden_problem(*believed, {.seed = 7, .links_by_kind = true});
  std::set<double> bandwidths, of_each, of_kinds;
  for (LinkId link : id_range<LinkId>(believed->cluster->link_count())) {
    bandwidths.insert(believed->cluster->link(link).bytes_per_second);
    of_each.insert(each->cluster->link(link).bytes_per_second);
    of_kinds.insert(by_kind->cluster->link(link).bytes_per_second);
  }
  EXPECT_EQ(of_kinds.size(), bandwidths.size());
  EXPECT_GT(of_each.size(), bandwidths.size());
  EXPECT_NE(of_kinds, bandwidths);
}

// Over many seeds: mean 0 and the asked deviation, half of the variance in common to a class.
TEST(Hidden, FactorsAreLogNormal) {
  const auto believed = believed_problem();
  std::vector<OpId> products;  // of one class, of different work
  std::set<Bytes> sizes;
  for (OpId op : believed->graph->op_ids()) {
    if (believed->graph->op(op).alias) continue;
    const OpWork work = op_work(*believed->graph, op, 24);
    if (work.op_class != cluster::OpClass::kMatMul) continue;
    if (sizes.insert(work.bytes).second) products.push_back(op);
  }
  ASSERT_GE(products.size(), 2u);
  constexpr int kSeeds = 800;
  double sum = 0, squares = 0, both = 0, link = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto hidden =
        hidden_problem(*believed, {.seed = static_cast<std::uint64_t>(seed), .spread = 0.4});
    const double a = factor(*believed, *hidden, products[0], DeviceTypeId(0));
    const double b = factor(*believed, *hidden, products[1], DeviceTypeId(0));
    const double l = std::log(hidden->cluster->link(LinkId(3)).bytes_per_second /
                              believed->cluster->link(LinkId(3)).bytes_per_second);
    sum += a;
    squares += a * a;
    both += a * b;
    link += l * l;
  }
  EXPECT_NEAR(sum / kSeeds, 0, 4 * 0.4 / std::sqrt(kSeeds));
  EXPECT_NEAR(std::sqrt(squares / kSeeds), 0.4, 0.04);
  EXPECT_NEAR(both / kSeeds, 0.08, 0.025);
  EXPECT_NEAR(std::sqrt(link / kSeeds), 0.4, 0.04);
}

TEST(Hidden, ASeedIsOneProblem) {
  const auto believed = believed_problem();
  const auto one = hidden_problem(*believed, {.seed = 3}),
             same = hidden_problem(*believed, {.seed = 3}),
             other = hidden_problem(*believed, {.seed = 4}),
             none = hidden_problem(*believed, {.seed = 3, .spread = 0});
  std::int64_t differ = 0;
  for (OpId op : believed->graph->op_ids()) {
    const Nanoseconds time = one->costs.duration(op, DeviceTypeId(1), 24);
    EXPECT_EQ(time, same->costs.duration(op, DeviceTypeId(1), 24));
    EXPECT_EQ(none->costs.duration(op, DeviceTypeId(1), 24),
              believed->costs.duration(op, DeviceTypeId(1), 24));
    differ += time != other->costs.duration(op, DeviceTypeId(1), 24);
  }
  EXPECT_GT(differ, 50);
  EXPECT_EQ(one->cluster->link(LinkId(0)).bytes_per_second,
            same->cluster->link(LinkId(0)).bytes_per_second);
}

// The sums that speeds are made of, by hand.
TEST(Hidden, SpeedsAreThoseOfTheTimes) {
  const auto believed = believed_problem();
  const auto hidden = hidden_problem(*believed, {.seed = 5});
  for (DeviceTypeId type : id_range<DeviceTypeId>(believed->cluster->type_count())) {
    double seconds = 0;
    for (OpId op : believed->graph->op_ids()) {
      seconds += to_seconds(hidden->costs.duration(op, type, 24));
    }
    EXPECT_NEAR(hidden->costs.model_speed(type) * seconds, 1, 1e-3);
  }
  for (OpId op : believed->graph->op_ids()) {
    double seconds = 0;
    for (DeviceId device : believed->cluster->device_ids()) {
      seconds += to_seconds(hidden->costs.duration(op, believed->cluster->device(device).type, 24));
    }
    EXPECT_NEAR(hidden->costs.mean_seconds(op), seconds / 8, 1e-9 + seconds * 1e-3);
  }
}

}  // namespace
}  // namespace heterog::cost

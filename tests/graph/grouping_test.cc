// Colocation sets and groups: small cases worked out by hand, and a slow reference.
#include "graph/grouping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/rng.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;
using support::OpOptions;

// The names of each set's ops, sets in order of their first op.
std::vector<std::set<std::string>> named_sets(const ModelGraph& graph) {
  const auto set_of = colocation_sets(graph);
  std::vector<std::set<std::string>> sets;
  for (OpId id : graph.op_ids()) {
    const std::size_t set = set_of[id].value();
    if (set == sets.size()) sets.emplace_back();  // dense, in order of the first member
    sets.at(set).insert(graph.op(id).name);
  }
  return sets;
}

using Sets = std::vector<std::set<std::string>>;

TEST(ColocationSets, TinyMlp) {
  // Forward: t addmm relu t_1 addmm_1 sub mul sum div. Backward: ones_like div_1 expand mul_1 mul_2
  // mm, then of the second layer t_2 mm_1 sum_1 view, then threshold_backward, then of the first
  // layer t_3 mm_2 sum_2 view_1. Updates: mul_3 sub_1 … mul_6 sub_4, second layer first. Views go
  // with what makes their base: t_2 with mul_2, t_3 with threshold_backward, expand with div_1.
  const Sets expected = {
      {"t", "addmm", "mm_2", "sum_2", "view_1", "mul_5", "sub_3", "mul_6", "sub_4"},
      {"relu", "threshold_backward", "t_3"},
      {"t_1", "addmm_1", "mm", "mm_1", "sum_1", "view", "mul_3", "sub_1", "mul_4", "sub_2"},
      {"sub"},
      {"mul", "mul_1", "mul_2", "t_2"},
      {"sum"},
      {"div", "ones_like", "div_1", "expand"}};
  EXPECT_EQ(named_sets(support::tiny_mlp_graph()), expected);
}

TEST(ColocationSets, TiedParametersMergeTheirReaders) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(4)});
  const TensorId w = maker.parameter("w", {n(4), n(4)});
  const TensorId y = maker.op("aten.mm.default", {tensor_value(x), tensor_value(w)}, {kB, n(4)});
  const TensorId z = maker.op("aten.relu.default", {tensor_value(y)}, {kB, n(4)});
  const TensorId t = maker.op("aten.t.default", {tensor_value(w)}, {n(4), n(4)});
  maker.op("aten.mm.default", {tensor_value(z), tensor_value(t)}, {kB, n(4)});
  EXPECT_EQ(named_sets(std::move(maker).build()), (Sets{{"mm", "t", "mm_1"}, {"relu"}}));
}

TEST(ColocationSets, SharedInputsAndTheirViewsDoNotMerge) {
  GraphMaker maker;
  const TensorId mask = maker.input("mask", {kB});
  const TensorId x = maker.input("x", {kB});
  const TensorId view = maker.op("aten.unsqueeze.default", {tensor_value(mask)}, {kB, n(1)});
  const TensorId a = maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(view)}, {kB});
  maker.op("aten.mul.Tensor", {tensor_value(a), tensor_value(view)}, {kB});
  EXPECT_EQ(named_sets(std::move(maker).build()), (Sets{{"unsqueeze", "mul"}, {"mul_1"}}));
}

TEST(ColocationSets, BackwardOpsOfUnknownOriginFollowTheirFirstInput) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB});
  const TensorId a = maker.op("aten.relu.default", {tensor_value(x)}, {kB});
  const TensorId b = maker.op("aten.tanh.default", {tensor_value(x)}, {kB});
  const OpOptions unknown{.phase = Phase::kBackward};
  OpOptions of_b = unknown;
  of_b.forward = maker.maker(b);
  const TensorId zeros = maker.op("aten.zeros.default", {}, {kB}, unknown);  // first reader: sin
  const TensorId db = maker.op("aten.sin.default", {tensor_value(zeros)}, {kB}, of_b);
  maker.op("aten.add.Tensor", {tensor_value(db), tensor_value(a)}, {kB}, unknown);
  EXPECT_EQ(named_sets(std::move(maker).build()),
            (Sets{{"relu"}, {"tanh", "zeros", "sin", "add"}}));
}

TEST(ColocationSets, ClippingByTheGlobalNormIsASetOfItsOwn) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB});
  const OpOptions backward{.phase = Phase::kBackward}, update{.phase = Phase::kUpdate};
  std::vector<Value> norms;
  std::vector<std::pair<TensorId, TensorId>> gradients;
  for (const char* name : {"v", "w"}) {
    const TensorId parameter = maker.parameter(name, {n(1)});
    const TensorId y =
        maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(parameter)}, {kB});
    OpOptions gradient = backward;
    gradient.forward = maker.maker(y);
    gradient.role = TensorRole::kGradient;
    gradient.of = parameter;
    gradients.emplace_back(parameter,
                           maker.op("aten.sum.default", {tensor_value(y)}, {n(1)}, gradient));
  }
  for (const auto& [parameter, gradient] : gradients) {
    norms.push_back(
        tensor_value(maker.op("aten.norm.Scalar", {tensor_value(gradient)}, {}, update)));
  }
  const TensorId stack = maker.op("aten.stack.default", {list_value(norms)}, {n(2)}, update);
  const TensorId norm = maker.op("aten.norm.Scalar", {tensor_value(stack)}, {}, update);
  for (const auto& [parameter, gradient] : gradients) {
    const TensorId clipped =
        maker.op("aten.div.Tensor", {tensor_value(gradient), tensor_value(norm)}, {n(1)}, update);
    OpOptions output = update;
    output.role = TensorRole::kOutput;
    output.replaces = parameter;
    maker.op("aten.sub.Tensor", {tensor_value(parameter), tensor_value(clipped)}, {n(1)}, output);
  }
  EXPECT_EQ(named_sets(std::move(maker).build()),
            (Sets{{"mul", "sum", "norm", "div", "sub"},
                  {"mul_1", "sum_1", "norm_1", "div_1", "sub_1"},
                  {"stack", "norm_2"}}));
}

TEST(ColocationSets, APenaltyOverAllWeightsDoesNotSwallowTheModel) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB});
  std::vector<Value> all;
  for (int i = 0; i < 20; ++i) {
    const TensorId w = maker.parameter("w" + std::to_string(i), {n(1)});
    all.push_back(tensor_value(w));
    maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(w)}, {kB});
  }
  maker.op("aten.cat.default", {list_value(all)}, {n(20)});
  EXPECT_EQ(named_sets(std::move(maker).build()).size(), 21u);
}

TEST(ColocationSets, ACounterGoesWithItsModule) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB});
  const TensorId count = maker.buffer("count", {});
  OpOptions in_norm{.scope = "norm"};
  maker.op("aten.relu.default", {tensor_value(x)}, {kB});
  maker.op("aten.norm.Scalar", {tensor_value(x)}, {kB}, in_norm);
  in_norm.role = TensorRole::kOutput;
  in_norm.replaces = count;
  maker.op("aten.add.Tensor", {tensor_value(count), int_value(1)}, {}, in_norm);
  EXPECT_EQ(named_sets(std::move(maker).build()), (Sets{{"relu"}, {"norm", "add"}}));
}

// A chain of n ops that share nothing else.
ModelGraph chain(int length) {
  GraphMaker maker;
  TensorId at = maker.input("x", {kB});
  for (int i = 0; i < length; ++i) at = maker.op("aten.relu.default", {tensor_value(at)}, {kB});
  return std::move(maker).build();
}

std::vector<std::size_t> groups_of(const ModelGraph& graph, std::vector<double> weights,
                                   int count) {
  const Grouping grouping = group_ops(graph, weights, count);
  std::vector<std::size_t> groups;
  for (GroupId group : grouping.group_of) groups.push_back(group.value());
  return groups;
}

TEST(GroupOps, SetsJoinTheNearestSeedAndTiesTheHeavier) {
  // Seeds: ops 1 (weight 5) and 5 (weight 9). Op 3 is two hops from both and joins the heavier.
  EXPECT_EQ(groups_of(chain(7), {1, 5, 1, 1, 1, 9, 1}, 2),
            (std::vector<std::size_t>{0, 0, 0, 1, 1, 1, 1}));
  // Equal weights: the seed with the lower id.
  EXPECT_EQ(groups_of(chain(7), {1, 5, 1, 1, 1, 5, 1}, 2),
            (std::vector<std::size_t>{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(groups_of(chain(3), {1, 1, 1}, 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(groups_of(chain(3), {1, 1, 1}, 1), (std::vector<std::size_t>{0, 0, 0}));
}

TEST(GroupOps, MembersMatchAndAscend) {
  const ModelGraph graph = support::tiny_mlp_graph();
  const std::vector<double> weights(graph.op_count(), 1.0);
  const Grouping grouping = group_ops(graph, weights, 3);
  ASSERT_EQ(grouping.count(), 3u);
  std::size_t total = 0;
  for (GroupId group : id_range<GroupId>(grouping.count())) {
    const auto members = grouping.members[group];
    EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
    for (OpId op : members) EXPECT_EQ(grouping.group_of[op], group);
    total += members.size();
  }
  EXPECT_EQ(total, graph.op_count());
  EXPECT_EQ(grouping.group_of[OpId(0)], GroupId(0));
}

// Every distance from every seed, by a search of its own.
std::vector<std::size_t> reference_groups(const std::vector<std::vector<std::size_t>>& neighbours,
                                          const std::vector<double>& weights, std::size_t count) {
  std::vector<std::size_t> seeds(weights.size());
  for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = i;
  std::stable_sort(seeds.begin(), seeds.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  seeds.resize(count);
  std::vector<std::size_t> best(weights.size(), seeds[0]);
  std::vector<std::size_t> best_hops(weights.size(), std::numeric_limits<std::size_t>::max());
  for (std::size_t seed : seeds) {
    std::vector<std::size_t> hops(weights.size(), std::numeric_limits<std::size_t>::max());
    hops[seed] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t at = 0; at < hops.size(); ++at) {
        for (std::size_t next : neighbours[at]) {
          if (hops[at] == std::numeric_limits<std::size_t>::max()) continue;
          if (hops[at] + 1 < hops[next]) {
            hops[next] = hops[at] + 1;
            changed = true;
          }
        }
      }
    }
    for (std::size_t i = 0; i < hops.size(); ++i) {
      if (hops[i] < best_hops[i]) {
        best_hops[i] = hops[i];
        best[i] = seed;
      }
    }
  }
  return best;
}

TEST(GroupOps, AgreesWithAnObviousReference) {
  Rng rng(11);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const std::size_t count = 5 + rng.below(40);
    GraphMaker maker;
    const TensorId x = maker.input("x", {kB});
    std::vector<TensorId> made;
    std::vector<double> weights;
    std::vector<std::vector<std::size_t>> neighbours(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Value> args = {tensor_value(x)};
      for (std::uint64_t k = rng.below(3); k > 0 && i > 0; --k) {
        const std::size_t from = rng.below(i);
        args.push_back(tensor_value(made[from]));
        neighbours[i].push_back(from);
        neighbours[from].push_back(i);
      }
      made.push_back(maker.op("aten.cat.default", {list_value(args)}, {kB}));
      weights.push_back(static_cast<double>(rng.below(4)));
    }
    const ModelGraph graph = std::move(maker).build();
    const std::size_t limit = 1 + rng.below(count - 1);
    const auto expected = reference_groups(neighbours, weights, limit);
    const auto actual = groups_of(graph, weights, static_cast<int>(limit));
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        ASSERT_EQ(actual[a] == actual[b], expected[a] == expected[b])
            << repeat << ": " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace heterog::graph

// The linear program of m-SCT and what follows from it; METIS; and what is said without them.
#include "search/placement/sct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "search/placement/list_placement.h"
#include "search/placement/metis.h"
#include "search/placement/node_orders.h"
#include "search/placement/random_graphs.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using testing::HasSubstr;

constexpr int kPivots = 100'000;
constexpr double kEndless = std::numeric_limits<double>::infinity();

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// By weak duality a feasible point and prices whose bound is its objective are an optimum, whoever
// found them.
void expect_optimal(const LinearProgram& program, const LinearSolution& solution) {
  const std::size_t columns = program.cost.size();
  std::vector<double> rows(program.row_lower.size(), 0), reduced = program.cost;
  double objective = 0;
  for (std::size_t j = 0; j < columns; ++j) {
    ASSERT_GE(solution.columns[j], program.lower[j] - 1e-7);
    ASSERT_LE(solution.columns[j], program.upper[j] + 1e-7);
    objective += program.cost[j] * solution.columns[j];
    for (int e = program.begins[j]; e < program.begins[j + 1]; ++e) {
      const auto row = static_cast<std::size_t>(program.rows[static_cast<std::size_t>(e)]);
      const double value = program.values[static_cast<std::size_t>(e)];
      rows[row] += value * solution.columns[j];
      reduced[j] -= value * solution.prices[row];
    }
  }
  double bound = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_GE(rows[i], program.row_lower[i] - 1e-6);
    ASSERT_GE(solution.prices[i], -1e-7);  // all rows are bounded below alone
    bound += solution.prices[i] * program.row_lower[i];
  }
  for (std::size_t j = 0; j < columns; ++j) {
    if (reduced[j] > 0) {
      bound += reduced[j] * program.lower[j];
    } else if (reduced[j] < -1e-7) {
      ASSERT_LT(program.upper[j], kEndless);
      bound += reduced[j] * program.upper[j];
    }
  }
  EXPECT_NEAR(objective, solution.objective, 1e-6 * std::max(1.0, objective));
  EXPECT_NEAR(bound, objective, 1e-6 * std::max(1.0, objective));
}

// Least 2x + 3y with x + y ≥ 4, x ≤ 3 and y ≤ 9: x = 3, y = 1.
TEST(Clp, SolvesWhatAHandSolves) {
  LinearProgram program;
  program.row_lower = {4};
  program.row_upper = {kEndless};
  program.add_column(2, 0, 3);
  program.add_entry(0, 1);
  program.add_column(3, 0, 9);
  program.add_entry(0, 1);
  const LinearSolution solution = solve(program, kPivots);
  EXPECT_NEAR(solution.objective, 9, 1e-9);
  EXPECT_NEAR(solution.columns[0], 3, 1e-9);
  EXPECT_NEAR(solution.columns[1], 1, 1e-9);
  EXPECT_NEAR(solution.prices[0], 3, 1e-9);
  program.row_lower = {13};
  EXPECT_THAT(message_of([&] { solve(program, kPivots); }), HasSubstr("ends with status 1"));
}

TEST(Sct, ItsProgramIsSolvedToTheOptimum) {
  const auto two = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    const PlacementGraph graph = random_placement_graph(*two, {.nodes = 2 + rng.below(14)}, rng);
    const LinearProgram program = favourite_program(graph);
    expect_optimal(program, solve(program, kPivots));
  }
  for (const char* model : {"gnmt4-tiny", "inception_v3", "bert_large24-tiny"}) {
    const auto problem = load_test_problem(model, "celeritas-4gpu", 16);
    const PlacementGraph graph = make_placement_graph(*problem, Backward::kAnywhere);
    const LinearProgram program = favourite_program(graph);
    expect_optimal(program, solve(program, kPivots));
  }
}

// A chain: each node's only child is its favourite, and nothing has to be sent. A fork: one child
// of two.
TEST(Sct, FavouritesAreRunAtOnce) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  PlacementGraph graph;
  graph.problem = problem.get();
  std::vector<std::pair<NodeId, Edge>> inputs, outputs;
  for (const Nanoseconds time : {10'000, 30'000, 20'000}) {
    graph.ops.push_back({OpId(graph.size())});
    graph.kept.push_back(1);
    graph.set_of.push_back(graph.set_bytes.push_back(0));
    graph.durations.push_back(time);
  }
  graph.value_count = 2;
  const auto join = [&](std::size_t from, std::size_t to) {
    inputs.emplace_back(NodeId(to), Edge{NodeId(from), ValueId(from), 1});
    outputs.emplace_back(NodeId(from), Edge{NodeId(to), ValueId(from), 1});
  };
  join(0, 1);
  join(1, 2);
  graph.inputs = Csr<NodeId, Edge>::from_pairs(3, inputs);
  graph.outputs = Csr<NodeId, Edge>::from_pairs(3, outputs);
  const Favourites chain = favourites(graph, {});
  EXPECT_EQ(chain[NodeId(0)], NodeId(1));
  EXPECT_EQ(chain[NodeId(1)], NodeId(2));
  EXPECT_FALSE(chain[NodeId(2)].valid());
  const Estimate estimate = favourites_first(graph, {1 << 20, 1 << 20}, chain, LinkUse::kFree);
  EXPECT_EQ(estimate.finish(), 60'000);

  inputs.pop_back();
  outputs.pop_back();
  join(0, 2);
  graph.inputs = Csr<NodeId, Edge>::from_pairs(3, inputs);
  graph.outputs = Csr<NodeId, Edge>::from_pairs(3, outputs);
  // Both children end at once with x of 0.3 and 0.7 or so: the longer one is the favourite.
  EXPECT_EQ(favourites(graph, {})[NodeId(0)], NodeId(1));
}

// Without favourites it is m-ETF.
TEST(Sct, WithoutFavouritesIsEtf) {
  const auto problem = load_test_problem("lenet5-tiny", "celeritas-4gpu", 8);
  Rng rng(6);
  int other = 0;
  for (int i = 0; i < 300; ++i) {
    const PlacementGraph graph =
        random_placement_graph(*problem, {.nodes = 4 + rng.below(20), .sets = true}, rng);
    const std::vector<Bytes> capacity(4, Bytes{1} << 40);
    const Estimate one =
        favourites_first(graph, capacity, Favourites(graph.size()), LinkUse::kFree);
    const Estimate etf = earliest_start_first(graph, capacity, LinkUse::kFree);
    EXPECT_EQ(one.placement(), etf.placement());
    EXPECT_EQ(one.finish(), etf.finish());
    const Estimate with = favourites_first(graph, capacity, favourites(graph, {}), LinkUse::kFree);
    other += with.placement() != etf.placement() ? 1 : 0;
  }
  EXPECT_GT(other, 50);
}

// A line of two long nodes and six short ones: half of the work is behind the second, where little
// is sent.
TEST(Metis, CutsWhereLeastIsSent) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  PlacementGraph graph;
  graph.problem = problem.get();
  std::vector<std::pair<NodeId, Edge>> inputs, outputs;
  for (int i = 0; i < 8; ++i) {
    graph.ops.push_back({OpId(graph.size())});
    graph.kept.push_back(1);
    graph.set_of.push_back(graph.set_bytes.push_back(0));
    graph.durations.push_back(i < 2 ? 30'000 : 10'000);
  }
  for (std::size_t to = 1; to < 8; ++to) {
    const Edge edge{NodeId(to - 1), ValueId(to - 1), to == 2 ? 100 : 1'000'000};
    inputs.emplace_back(NodeId(to), edge);
    outputs.emplace_back(NodeId(to - 1), Edge{NodeId(to), edge.value, edge.bytes});
  }
  graph.value_count = 7;
  graph.inputs = Csr<NodeId, Edge>::from_pairs(8, inputs);
  graph.outputs = Csr<NodeId, Edge>::from_pairs(8, outputs);
  const Placement placement = partitioned(graph, {});
  for (std::size_t node = 0; node < 8; ++node) {
    EXPECT_EQ(placement[NodeId(node)], placement[NodeId(node < 2 ? 0 : 7)]) << node;
  }
  EXPECT_NE(placement[NodeId(0)], placement[NodeId(7)]);
}

// METIS remarks that there is nothing left to cut. It is no line of a table, nor of --json.
TEST(Metis, PrintsNothingWhereThereAreFewerSetsThanDevices) {
  const auto problem = load_test_problem("lenet5-tiny", "mixed-64gpu", 64);
  testing::internal::CaptureStdout();
  partitioned(make_placement_graph(*problem, Backward::kAnywhere), {});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(OutsideLibraries, AreNamedWhereTheyAreMissing) {
  const auto problem = load_test_problem("lenet5-tiny", "fastt-2gpu", 8);
  const PlacementGraph graph = make_placement_graph(*problem, Backward::kAnywhere);
  EXPECT_EQ(message_of([&] { solve(favourite_program(graph), 1, "libnone.so.1"); }),
            "m-sct: needs the solver CLP (libnone.so.1), which is not installed; on Debian: "
            "coinor-libclp1");
  EXPECT_EQ(message_of([&] { partitioned(graph, {}, "libnone.so.5"); }),
            "metis: needs the partitioner METIS (libnone.so.5), which is not installed; on Debian: "
            "libmetis5");
  EXPECT_THAT(message_of([&] { solve(favourite_program(graph), 1, "libz.so.1"); }),
              HasSubstr("m-sct: libz.so.1 has no Clp_"));
}

}  // namespace
}  // namespace heterog::search

// Ten thousand damaged graph files: each is refused with an input error or read, never a crash.
#include <gtest/gtest.h>

#include "base/file.h"
#include "graph/graph_io.h"
#include "graph/grouping.h"
#include "support/graphs.h"
#include "support/mutate.h"

namespace heterog {
namespace {

struct Outcomes {
  int accepted = 0;
  int refused = 0;
};

// Reads `text` and, if it is accepted, uses the graph as its callers do.
void feed(const std::string& text, Outcomes& outcomes) {
  try {
    const graph::ModelGraph graph = graph::parse_graph(text, "mutated");
    Bytes total = 0;
    for (TensorId id : graph.tensor_ids()) total += graph.bytes(id, graph::kMaxSamples);
    EXPECT_GE(total, 0);
    const std::vector<double> weights(graph.op_count(), 1.0);
    const auto grouping = graph::group_ops(graph, weights, 5);
    EXPECT_LE(grouping.count(), 5u);
    ++outcomes.accepted;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("mutated: ")) << error.what();
    ++outcomes.refused;
  }
}

// Both kinds of outcome must occur, or the damage is too mild or too coarse to test anything.
void expect_mixed(const Outcomes& outcomes, int total) {
  EXPECT_EQ(outcomes.accepted + outcomes.refused, total);
  EXPECT_GT(outcomes.accepted, total / 100);
  EXPECT_GT(outcomes.refused, total / 4);
}

TEST(MutateGraph, DamagedTextsOfABuiltGraph) {
  const std::string text = support::graph_text(support::tiny_mlp_graph());
  Rng rng(1);
  Outcomes outcomes;
  for (int i = 0; i < 5000; ++i) feed(support::mutate(text, rng), outcomes);
  expect_mixed(outcomes, 5000);
}

TEST(MutateGraph, DamagedTextsOfAnExportedGraph) {
  const std::string text = read_file("models/lenet5-tiny.json.gz");
  Rng rng(2);
  Outcomes outcomes;
  for (int i = 0; i < 3000; ++i) feed(support::mutate(text, rng), outcomes);
  expect_mixed(outcomes, 3000);
}

TEST(MutateGraph, DamagedGzip) {
  const std::string packed = gzip(support::graph_text(support::tiny_mlp_graph()));
  Rng rng(3);
  int damaged = 0;
  Outcomes outcomes;
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes = support::mutate(packed, rng);
    std::string text;
    try {
      text = is_gzip(bytes) ? gunzip(bytes, "mutated") : bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      ++damaged;
      continue;
    }
    feed(text, outcomes);
  }
  EXPECT_GT(damaged, 1000);
}

}  // namespace
}  // namespace heterog

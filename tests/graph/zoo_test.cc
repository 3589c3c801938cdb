// Every graph of the zoo is read, and its colocation sets are as small as layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "graph/graph_io.h"
#include "graph/grouping.h"

namespace heterog::graph {
namespace {

std::vector<std::string> zoo() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    const std::string path = entry.path().string();
    if (path.ends_with(".json.gz")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Zoo, IsReadAndGrouped) {
  const auto paths = zoo();
  ASSERT_FALSE(paths.empty());
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const ModelGraph graph = read_graph(path);
    const auto sets = colocation_sets(graph);
    std::vector<std::size_t> sizes;
    for (GroupId set : sets) {
      if (set.value() >= sizes.size()) sizes.resize(set.value() + 1);
      ++sizes[set.value()];
    }
    EXPECT_GE(sizes.size(), 8u);
    // No set swallows the model: of large graphs, none holds an eighth. The most is the 35 steps of
    // one LSTM layer, which share a weight.
    const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
    if (graph.op_count() >= 1000) {
      EXPECT_LT(largest, graph.op_count() / 8);
    }
    for (OpId id : graph.op_ids()) {
      const Op& op = graph.op(id);
      if (op.forward.valid() && !op.alias) {
        EXPECT_EQ(sets[id], sets[op.forward]) << op.name;
      }
    }
    const std::vector<double> weights(graph.op_count(), 1.0);
    EXPECT_EQ(group_ops(graph, weights, 60).count(), std::min<std::size_t>(60, sizes.size()));
  }
}

}  // namespace
}  // namespace heterog::graph

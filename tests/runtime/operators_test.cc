// Every operator of the zoo exists; one that does not is named.
#include "runtime/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "graph/graph_io.h"

namespace heterog::runtime {
namespace {

TEST(Operators, AllOfTheZooExist) {
  std::size_t graphs = 0;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".json.gz")) continue;
    EXPECT_NO_THROW(check_operators(graph::read_graph(path), path)) << path;
    ++graphs;
  }
  EXPECT_GT(graphs, 30u);
}

TEST(Operators, OneThatPyTorchDoesNotHaveIsNamed) {
  for (const char* wrong : {"aten.rleu.default", "aten.relu.Tensor", "mine.relu.default"}) {
    std::string text = read_file("models/vgg19-tiny.json.gz");
    const std::string right = "aten.relu.default";
    const std::size_t at = text.find(right);
    ASSERT_NE(at, std::string::npos);
    const graph::ModelGraph graph =
        graph::parse_graph(text.replace(at, right.size(), wrong), "graph.json");
    try {
      check_operators(graph, "graph.json");
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("graph.json: op 'relu"),
                                               testing::HasSubstr(wrong)));
    }
  }
}

}  // namespace
}  // namespace heterog::runtime

// Every operator of the zoo exists; one that does not is named.
#include "runtime/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "graph/graph_io.h"
#include "graph/operators.h"
#include "runtime/dispatcher.h"

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

// Nothing that could write a file, or change what is not the step's own, is called by a name.
TEST(Operators, OnlyThoseOfTheTableAreCalled) {
  int given = 0, refused = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!c10::Dispatcher::singleton().findSchema(name)) continue;
    const std::size_t colons = name.name.find("::");
    const std::string type =
        fmt::format("{}.{}.{}", name.name.substr(0, colons), name.name.substr(colons + 2),
                    name.overload_name.empty() ? "default" : name.overload_name);
    if (graph::is_allowed_operator(type)) {
      const auto handle = operator_to_call(type);
      EXPECT_FALSE(handle.schema().is_mutable()) << type;
      ++given;
    } else {
      EXPECT_THROW(operator_to_call(type), Error) << type;
      ++refused;
    }
    if (const auto twin = twin_to_call(type)) {
      EXPECT_TRUE(graph::is_allowed_operator(type)) << type;
      EXPECT_EQ(twin->operator_name().name, name.name + "_");
    }
  }
  EXPECT_GT(given, 500);
  EXPECT_GT(refused, 1000);
}

// The arguments of the first op of that type, replaced.
std::string with_arguments(std::string text, const std::string& type,
                           const std::string& arguments) {
  const std::size_t op = text.find("\"op\": \"" + type + "\"");
  const std::size_t begin = text.find("\"args\": ", op);
  const std::size_t end = text.find(", \"outputs\"", begin);
  EXPECT_NE(end, std::string::npos) << type;
  return text.replace(begin, end - begin, arguments);
}

TEST(Operators, ArgumentsAreThoseOfTheOperator) {
  const std::string text = read_file("models/lenet5-tiny.json.gz");
  const auto refused = [&](const std::string& type, const std::string& arguments,
                           const std::string& part) {
    try {
      check_operators(graph::parse_graph(with_arguments(text, type, arguments), "graph.json"),
                      "graph.json");
      ADD_FAILURE() << type << ' ' << arguments << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("graph.json: op "),
                                               testing::HasSubstr(type), testing::HasSubstr(part)));
    }
  };
  refused("aten.tanh.default", R"("args": [])", "'self' is missing");
  refused("aten._log_softmax.default", R"("args": ["%37", 1])", "'half_to_float' is missing");
  refused("aten.tanh.default", R"("args": ["%23", 1])", "2 given, the operator takes 1");
  refused("aten.tanh.default", R"("args": ["%23"], "kwargs": {"colour": 1})",
          "no argument 'colour'");
  refused("aten.tanh.default", R"("args": ["%23"], "kwargs": {"self": 1})", "among the args");
  refused("aten.tanh.default", R"("args": [["%23"]])", "'self' is of another kind");
  refused("aten._log_softmax.default", R"("args": ["%37", "%37", false])", "'dim' is of another");
}

}  // namespace
}  // namespace heterog::runtime

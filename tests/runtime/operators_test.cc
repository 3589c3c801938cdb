// Operators of graphs: all of the zoo's exist, what a graph may not hold is refused, and so are
// arguments that an operator does not take.
#include "runtime/kernels/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "graph/graph_io.h"
#include "operators/allowed.h"
#include "operators/facts.h"
#include "runtime/kernels/dispatcher.h"
#include "runtime/kernels/execute.h"

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

// A graph of one op, with arguments as in a file.
std::string graph_text(const std::string& type, const std::string& args,
                       const std::string& kwargs = "{}", const std::string& outputs = "[2]") {
  return R"({"format": "heterog-graph", "version": 1, "name": "one", "dtype": "float32", "loss": 2,
    "tensors": [{"name": "x", "role": "input", "dtype": "float32", "shape": ["B", 3]},
                {"name": "w", "role": "input", "dtype": "float32", "shape": [3]},
                {"name": "y", "role": "output", "dtype": "float32", "shape": []}],
    "ops": [{"name": "a", "phase": "forward", "op": ")" +
         type + R"(", "args": )" + args + R"(, "kwargs": )" + kwargs + R"(, "outputs": )" +
         outputs + "}]}";
}

// What reading and checking the graph says.
std::string error_of(const std::string& text) {
  try {
    check_operators(graph::parse_graph(text, "f.json"), "f.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
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
    if (operators::is_allowed(type)) {
      const auto handle = operator_to_call(type);
      EXPECT_FALSE(handle.schema().is_mutable()) << type;
      EXPECT_EQ(twin_to_call(type).has_value(), operators::facts(type).in_place_twin) << type;
      ++given;
    } else {
      EXPECT_THROW(operator_to_call(type), Error) << type;
      ++refused;
    }
    if (const auto twin = twin_to_call(type)) {
      EXPECT_TRUE(operators::is_allowed(type)) << type;
      EXPECT_EQ(twin->operator_name().name, name.name + "_");
    }
  }
  for (std::string_view other : {"aten.view.default", "aten._unsafe_view.default"}) {
    EXPECT_NO_THROW(operator_to_call(operators::facts(other).called_as));
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
  refused("aten._log_softmax.default", R"("args": ["%37", 1e300, false])", "'dim' is of another");
  refused("aten._log_softmax_backward_data.default", R"("args": ["%37", "%37", 1, 200])",
          "'input_dtype' is of another");
}

TEST(Operators, OnesThatPyTorchDoesNotHaveAreNamed) {
  for (const char* wrong : {"aten.rleu.default", "aten.relu.Tensor", "mine.relu.default"}) {
    graph::GraphBuilder builder("old");
    const TensorId x =
        builder.add_tensor({.name = "x", .role = graph::TensorRole::kInput, .shape = {{0, 3}}});
    const TensorId y = builder.add_tensor({.name = "y", .shape = {{0, 3}}});
    builder.add_op(
        {.name = "relu", .type = wrong, .args = {graph::tensor_value(x)}, .outputs = {y}});
    const graph::ModelGraph graph = std::move(builder).build("test");
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

TEST(Operators, ResultsAreNoMoreThanTheOperatorReturns) {
  EXPECT_EQ(error_of(graph_text("aten.add.Tensor", R"(["%0", "%1"])")), "no error");
  EXPECT_EQ(error_of(graph_text("aten.add.Tensor", R"(["%0", "%1"])", "{}", "[null, 2]")),
            "f.json: op 'a' (aten.add.Tensor): outputs: 2 given, the operator returns 1");
}

// A list of tensors is as long as it is: then the call finds out.
TEST(Operators, AListOfResultsThatIsTooShortIsRefusedWhereItIsMade) {
  const graph::ModelGraph graph = graph::parse_graph(
      graph_text("aten.split.Tensor", R"(["%0", 2, 1])", "{}", "[null, null, 2]"), "f.json");
  check_operators(graph, "f.json");
  const std::vector<at::Tensor> operands = {at::zeros({2, 3})};
  EXPECT_THROW(execute(graph, OpId(0), operands, {2, 2}, {}), Error);
}

// The types that an operator of a graph may take: nothing but tensors, numbers and choices.
bool is_harmless(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return is_harmless(optional->getElementType());
  }
  if (const auto list = type->cast<c10::ListType>()) return is_harmless(list->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
      return true;
    default:
      return false;
  }
}

bool is_tensors(const c10::TypePtr& type) {
  if (const auto list = type->cast<c10::ListType>()) return is_tensors(list->getElementType());
  return type->kind() == c10::TypeKind::TensorType;
}

// "aten::add" and "Tensor" → "aten.add.Tensor".
std::string type_of(const c10::OperatorName& name) {
  std::string type = name.name;
  if (const std::size_t colons = type.find("::"); colons != type.npos) type.replace(colons, 2, ".");
  return type + "." + (name.overload_name.empty() ? std::string("default") : name.overload_name);
}

// Why a graph must not hold the operator; empty if it may. Those that draw by counter are never
// called with a generator.
std::string danger_of(const c10::FunctionSchema& schema) {
  if (!schema.name().starts_with("aten::") && !schema.name().starts_with("heterog::")) {
    return "is no operator of ATen or of ours";
  }
  if (schema.is_vararg() || schema.is_varret()) return "takes or returns anything";
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() && argument.alias_info()->isWrite()) return "writes its argument";
    if (argument.type()->kind() == c10::TypeKind::OptionalType &&
        argument.type()->expectRef<c10::OptionalType>().getElementType()->kind() ==
            c10::TypeKind::GeneratorType) {
      const std::string type = type_of(schema.operator_name());
      if (operators::facts(type).random != operators::Random::kCounter) return "takes a generator";
      continue;
    }
    if (!is_harmless(argument.type())) return "takes " + argument.type()->str();
    if (argument.type()->str().find("str") == std::string::npos) continue;
    for (const char* part : {"file", "path", "name", "url", "msg"}) {
      if (argument.name().find(part) != std::string::npos) return "names " + argument.name();
    }
  }
  if (schema.returns().empty()) return "returns nothing";
  for (const c10::Argument& result : schema.returns()) {
    if (!is_tensors(result.type())) return "returns " + result.type()->str();
  }
  return {};
}

// A graph is data: whoever wrote its file cannot ask for more than that tensors be computed.
TEST(Operators, AGraphHoldsNoneThatDoesMoreThanComputeTensors) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::size_t allowed = 0, refused = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto handle = dispatcher.findSchema(name);
    if (!handle) continue;
    const std::string type = type_of(name);
    if (operators::is_allowed(type)) {
      ++allowed;
      EXPECT_EQ(danger_of(handle->schema()), "") << type;
    } else {
      ++refused;
      EXPECT_THAT(error_of(graph_text(type, R"(["%0"])")),
                  testing::HasSubstr("is no operator that a graph may hold"))
          << type;
    }
  }
  // None of the table is unknown to PyTorch, and the walk has seen the rest.
  EXPECT_EQ(allowed, operators::allowed_overloads().size());
  EXPECT_GT(refused, 2000u);
  for (const char* type : {"aten.from_file.default", "aten.fill_.Scalar", "aten.set_.default",
                           "aten.resize_.default", "aten.add.out", "aten.record_stream.default"}) {
    EXPECT_FALSE(operators::is_allowed(type)) << type;
  }
}

TEST(Operators, NoneIsCalledThatTheTableLacks) {
  graph::GraphBuilder builder("fill");
  const TensorId x =
      builder.add_tensor({.name = "x", .role = graph::TensorRole::kInput, .shape = {{0, 3}}});
  const TensorId y = builder.add_tensor({.name = "y", .shape = {{0, 3}}});
  builder.add_op({.name = "fill",
                  .type = "aten.fill_.Scalar",
                  .args = {graph::tensor_value(x), graph::int_value(1)},
                  .outputs = {y}});
  const graph::ModelGraph graph = std::move(builder).build("test");
  const std::vector<at::Tensor> operands = {at::zeros({3})};
  EXPECT_THROW(execute(graph, OpId(0), operands, {1, 1}, {}), Error);
}

}  // namespace
}  // namespace heterog::runtime

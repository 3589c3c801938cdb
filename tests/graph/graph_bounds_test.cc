// Graph files that are large in one respect or another: read up to ten times the zoo's largest,
// refused beyond, and neither takes the machine's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "graph/graph_io.h"
#include "support/peak.h"

namespace heterog::graph {
namespace {

using support::attempt;
using support::Attempt;
using testing::HasSubstr;

constexpr double kMaxPeak = 1000;  // MB

std::string graph_text(const std::string& tensors, const std::string& ops) {
  return R"({"format": "heterog-graph", "version": 1, "name": "large", "dtype": "float32",
             "loss": 1, "tensors": [{"name": "x", "role": "input", "dtype": "float32",
             "shape": ["B"]}, {"name": "loss", "role": "output", "dtype": "float32", "shape": []})" +
         tensors + R"(], "ops": [{"name": "sum", "op": "aten.sum.default", "phase": "forward",
             "args": ["%0"], "outputs": [1]})" +
         ops + "]}";
}

std::string repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

Attempt read(const std::function<std::string()>& text) {
  return attempt([&] { parse_graph(text(), "f.json"); });
}

void expect_refused(const std::string& message, const std::function<std::string()>& text) {
  const Attempt result = read(text);
  EXPECT_THAT(result.error, HasSubstr("f.json: "));
  EXPECT_THAT(result.error, HasSubstr(message));
  EXPECT_LT(result.peak_megabytes, kMaxPeak) << message;
}

// 230,000 ops, ten times as many as XLNet-large of 48 layers has.
TEST(GraphBounds, TenTimesTheLargestGraphOfTheZooIsRead) {
  const Attempt result = read([] {
    std::string tensors, ops;
    for (int i = 0; i < 230'000; ++i) {
      tensors += fmt::format(
          R"(,{{"name":"multi_head_attention_{0}","role":"activation","dtype":"float32","shape":["B",1024,16]}})",
          i);
      ops += fmt::format(
          R"(,{{"name":"multi_head_attention_{0}","op":"aten.mul.Tensor","phase":"forward","scope":"transformer.layer.{1}.attention","args":["%{2}","%0"],"outputs":[{3}]}})",
          i, i % 48, i == 0 ? 0 : i + 1, i + 2);
    }
    return graph_text(tensors, ops);
  });
  EXPECT_EQ(result.error, "");
  EXPECT_LT(result.peak_megabytes, kMaxPeak);
}

TEST(GraphBounds, ArgumentsAreCounted) {
  expect_refused("ops[1].args: more than 2097152 arguments in all", [] {
    return graph_text("", R"(,{"name":"a","op":"aten.cat.default","phase":"forward","outputs":[1],
                              "args":[[)" +
                              repeated("1,", 3'000'000) + "1]]}");
  });
  expect_refused("arguments in all", [] {
    return graph_text("", repeated(R"(,{"name":"a","op":"aten.cat.default","phase":"forward",
                                       "outputs":[1],"args":[[[],[],[],[],[],[],[],[]],1,1]})",
                                   300'000));
  });
}

TEST(GraphBounds, SoAreDimensionsAndOutputs) {
  const std::string head = R"(,{"name":"t","role":"activation","dtype":"float32","shape":[)";
  expect_refused("tensors[2].shape: 3000001 dimensions, expected at most 64",
                 [&] { return graph_text(head + repeated("1,", 3'000'000) + "1]}", ""); });
  expect_refused("ops[1].outputs: 3000001 entries", [] {
    return graph_text("", R"(,{"name":"a","op":"aten.split.Tensor","phase":"forward","args":["%0"],
                              "outputs":[)" +
                              repeated("null,", 3'000'000) + "1]}");
  });
}

TEST(GraphBounds, SizesThatOverflowAreRefused) {
  const std::string head = R"(,{"name":"t","role":"input","dtype":"float32","shape":[)";
  for (const char* shape :
       {"4611686018427387904", "\"4611686018427387904B\"", "\"B+4611686018427387904\"",
        "\"1099511627776B\"", "1099511627776,1099511627776", "\"-B\"", "\"B-9223372036854775808\"",
        "-1", "1e300", "\"#B\""}) {
    const Attempt result = read([&] { return graph_text(head + shape + "]}", ""); });
    EXPECT_THAT(result.error, HasSubstr("f.json: tensors[2]")) << shape;
    EXPECT_THAT(result.error, HasSubstr("shape: ")) << shape;
  }
  for (const char* arg :
       {"\"#4611686018427387904B\"", "\"#B+4611686018427387904\"", "9223372036854775808",
        "\"$1/4611686018427387904B\"", "\"$1e400B\"", "\"%4294967295\""}) {
    const Attempt result = read([&] {
      return graph_text("", fmt::format(R"(,{{"name":"a","op":"aten.sum.default","phase":"forward",
                                             "args":[{}],"outputs":[1]}})",
                                        arg));
    });
    EXPECT_THAT(result.error, HasSubstr("f.json: ops[1].args: ")) << arg;
  }
}

}  // namespace
}  // namespace heterog::graph

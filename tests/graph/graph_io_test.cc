// Graph files: what is read, and each thing that is refused, by its message.
#include "graph/graph_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "base/json_reader.h"
#include "support/graphs.h"

namespace heterog::graph {
namespace {

using testing::HasSubstr;

constexpr const char* kText = R"({"format": "heterog-graph", "version": 1, "name": "mlp",
  "producer": {"torch": "2.11.0"}, "traced_batches": [4, 6, 10], "dtype": "float32",
  "optimizer": {"name": "SGD"}, "loss": 3,
  "tensors": [
    {"name": "x", "role": "input", "dtype": "int64", "shape": ["B", "4B+1", 3], "strides": [1, "B", 1]},
    {"name": "w", "role": "parameter", "dtype": "float32", "shape": [7]},
    {"name": "y", "role": "activation", "dtype": "float32", "shape": []},
    {"name": "loss", "role": "output", "dtype": "float32", "shape": []},
    {"name": "g", "role": "gradient", "dtype": "float32", "shape": [7], "of": 1},
    {"name": "w2", "role": "output", "dtype": "float32", "shape": [7], "replaces": 1}],
  "ops": [
    {"name": "a", "op": "aten.index_put.default", "phase": "forward", "scope": "fc", "outputs": [2, null],
     "args": ["%0", ["%1", null, true, 3, -0.5], "#4B", "$1/4B", ":float32", ":device", ":inf", "'x"],
     "kwargs": {"alpha": 2, "out": "%1"}},
    {"name": "b", "op": "aten.mul.Tensor", "phase": "forward", "args": ["%2", "%2"], "outputs": [3]},
    {"name": "c", "op": "aten.neg.default", "phase": "backward", "forward": 0, "args": ["%3"], "outputs": [4]},
    {"name": "d", "op": "aten.sub.Tensor", "phase": "update", "args": ["%1", "%4"], "outputs": [5]}]})";

// The message for a file in which `change` has been made.
std::string error_of(const std::function<void(Json&)>& change) {
  Json json = parse_json(kText, "f.json");
  change(json);
  try {
    parse_graph(json.dump(), "f.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(GraphIo, ReadsEveryField) {
  const ModelGraph graph = parse_graph(kText, "f.json");
  EXPECT_EQ(graph.name(), "mlp");
  EXPECT_EQ(graph.loss(), TensorId(3));
  const TensorId x(0);
  EXPECT_EQ(graph.tensor(x).dtype, DType::kInt64);
  EXPECT_EQ(graph.shape(x)[1], (Affine{4, 1}));
  EXPECT_EQ(graph.elements(x, 2), 2 * 9 * 3);
  EXPECT_EQ(graph.tensor(TensorId(4)).of, TensorId(1));
  EXPECT_EQ(graph.tensor(TensorId(5)).replaces, TensorId(1));
  const OpId op(0);
  EXPECT_EQ(graph.type_name(op), "aten.index_put.default");
  EXPECT_EQ(graph.scope(op), "fc");
  EXPECT_EQ(graph.op(OpId(2)).forward, op);
  EXPECT_EQ(graph.op(OpId(3)).phase, Phase::kUpdate);
  ASSERT_EQ(graph.outputs(op).size(), 2u);
  EXPECT_FALSE(graph.outputs(op)[1].valid());
  const auto args = graph.args(op);
  ASSERT_EQ(args.size(), 8u);
  ASSERT_EQ(args[1].items.size(), 5u);
  EXPECT_EQ(args[1].items[1].kind, Value::Kind::kNone);
  EXPECT_EQ(args[1].items[2].kind, Value::Kind::kBool);
  EXPECT_EQ(args[1].items[3], int_value(3));
  EXPECT_EQ(args[1].items[4], float_value(-0.5));
  EXPECT_EQ(args[2], size_value(4, 0));
  EXPECT_EQ(args[3].kind, Value::Kind::kReciprocal);
  EXPECT_EQ(args[5].text, "device");
  EXPECT_EQ(graph.kwargs(op)[0].first, "alpha");
  EXPECT_EQ(graph.inputs(op).size(), 3u);
}

TEST(GraphIo, RoundTrip) {
  const ModelGraph built = support::tiny_mlp_graph();
  const ModelGraph read = parse_graph(support::graph_text(built), "f.json");
  EXPECT_EQ(read.hash(), built.hash());
  const ModelGraph first = parse_graph(kText, "f.json");
  EXPECT_EQ(parse_graph(support::graph_text(first), "f.json").hash(), first.hash());
}

TEST(GraphIo, ReadsForWhichBatchesTheGraphHolds) {
  const auto known = [](const Json& json) { return parse_graph_file(json.dump(), "f.json").known; };
  Json json = parse_json(kText, "f.json");
  json["traced_batches"] = {64, 3, 2};  // of before there was `holds`
  EXPECT_EQ(known(json).text(), "2 and more");
  json["holds"] = {{2, 16}, {18, 18}, {100, nullptr}};
  const KnownBatches held = known(json);
  EXPECT_EQ(held.text(), "2 to 16, 18, 100 and more");
  for (std::int64_t batch : {2, 16, 18, 100, 1 << 20}) EXPECT_TRUE(held.contain(batch)) << batch;
  for (std::int64_t batch : {1, 17, 19, 99}) EXPECT_FALSE(held.contain(batch)) << batch;
  EXPECT_EQ(held.next(1), 2);
  EXPECT_EQ(held.next(17), 18);
  EXPECT_EQ(held.next(19), 100);
  EXPECT_EQ(held.last(17), 16);
  EXPECT_EQ(held.last(1), std::nullopt);
  json["holds"] = {{2, 16}};
  EXPECT_EQ(known(json).next(20), 16);
  json.erase("holds");
  json.erase("traced_batches");  // written by hand
  EXPECT_EQ(known(json).text(), "1 and more");
  const auto error = [&](const char* key, const Json& value) {
    return error_of([&](Json& file) { file[key] = value; });
  };
  EXPECT_THAT(error("traced_batches", {4, 0}), HasSubstr("traced_batches[1]"));
  EXPECT_THAT(error("traced_batches", "4, 6, 10"), HasSubstr("traced_batches"));
  EXPECT_THAT(error("holds", Json::array()), HasSubstr("holds: empty"));
  EXPECT_THAT(error("holds", {{2, 16}, {16, 18}}), HasSubstr("holds[1][0]"));
  EXPECT_THAT(error("holds", {{5, 4}}), HasSubstr("holds[0][1]"));
  EXPECT_THAT(error("holds", {{2, nullptr}, {80, 90}}), HasSubstr("holds[1]: expected [from, to]"));
  EXPECT_THAT(error("holds", {{2, 3, 4}}), HasSubstr("holds[0]: expected [from, to]"));
}

TEST(GraphIo, ReadsWhatMayBeInTf32) {
  const ModelGraph usual = parse_graph(kText, "f.json");
  EXPECT_EQ(usual.tf32(), (Tf32{.products = false, .convolutions = true}));
  Json json = parse_json(kText, "f.json");
  json["tf32"] = {"convolutions"};
  EXPECT_EQ(parse_graph(json.dump(), "f.json").hash(), usual.hash());
  json["tf32"] = {"products"};
  const ModelGraph other = parse_graph(json.dump(), "f.json");
  EXPECT_EQ(other.tf32(), (Tf32{.products = true, .convolutions = false}));
  EXPECT_NE(other.hash(), usual.hash());
  EXPECT_EQ(error_of([](Json& file) {
              file["tf32"] = {"products", "softmax"};
            }),
            "f.json: tf32[1]: expected \"products\" or \"convolutions\", not \"softmax\"");
}

TEST(GraphIo, ReadsBetweenWhichValuesInputsAndBuffersLie) {
  const auto read = [](const char* role, const Json& values) {
    Json json = parse_json(kText, "f.json");
    json["tensors"][0]["role"] = role;
    json["tensors"][0]["shape"] = {2};
    json["tensors"][0].erase("strides");
    json["tensors"][0]["values"] = values;
    const ModelGraph graph = parse_graph(json.dump(), "f.json");
    return graph.tensor(TensorId(0)).values;
  };
  EXPECT_EQ(read("input", {{"range", {0, 9}}}), (ValueRange{0, 9}));
  EXPECT_EQ(read("input", {{"range", {0.5, 0.5}}, {"also", {-100}}}), (ValueRange{0.5, 0.5}));
  EXPECT_EQ(read("input", {{"also", {-1}}}), std::nullopt);
  EXPECT_EQ(read("buffer", {{"fill", 3}}), (ValueRange{3, 3}));
  EXPECT_EQ(read("buffer", {{"list", {2, -1.5, 4}}}), (ValueRange{-1.5, 4}));
  EXPECT_EQ(read("buffer", {{"list", {2, ":inf"}}}), std::nullopt);
  EXPECT_EQ(read("buffer", {{"list", {true, false}}}), std::nullopt);
  EXPECT_EQ(read("buffer", {{"start", 0}, {"step", 1}}), std::nullopt);
  EXPECT_EQ(read("buffer", {{"file", "constants"}}), std::nullopt);
  for (const Json& wrong : {Json{9, 0}, Json{0}, Json{0, ":inf"}, Json{0, 1e300}, Json("0")}) {
    EXPECT_THAT(error_of([&](Json& json) { json["tensors"][0]["values"]["range"] = wrong; }),
                HasSubstr("tensors[0].values: range: expected [low, high]"));
  }
  Json json = parse_json(kText, "f.json");
  json["tensors"][0]["values"] = {{"range", {0, 9}}};
  EXPECT_EQ(parse_graph(json.dump(), "f.json").hash(), parse_graph(kText, "f.json").hash());
}

TEST(GraphIo, AnInputMaySayWhatItsArgumentIsCalled) {
  EXPECT_EQ(error_of([](Json& json) { json["tensors"][0]["argument"] = "t"; }), "no error");
  EXPECT_THAT(error_of([](Json& json) { json["tensors"][0]["argument"] = 3; }),
              HasSubstr("tensors[0].argument: expected a string"));
}

TEST(GraphIo, ReadsPackedFiles) {
  const std::string path = testing::TempDir() + "heterog_graph_io_test.json.gz";
  write_gzip_file(path, kText);
  EXPECT_EQ(read_graph(path).hash(), parse_graph(kText, "f").hash());
  const std::string packed = gzip(kText);
  write_file(path, packed.substr(0, packed.size() / 2));
  try {
    read_graph(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(".json.gz: damaged gzip: it ends early, as if cut off"));
  }
  std::remove(path.c_str());
}

TEST(GraphIo, RefusesMissingFiles) {
  try {
    read_graph("models/none.json.gz");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "models/none.json.gz: cannot open: No such file or directory");
  }
}

TEST(GraphIo, Header) {
  EXPECT_THAT(error_of([](Json& j) { j["format"] = "heterog-plan"; }),
              HasSubstr("f.json: format: expected \"heterog-graph\""));
  EXPECT_THAT(error_of([](Json& j) { j["version"] = 2; }), HasSubstr("version: expected 1"));
  EXPECT_THAT(error_of([](Json& j) { j["extra"] = 2; }),
              HasSubstr("f.json: unknown key \"extra\", expected one of dtype, format, loss"));
  EXPECT_THAT(error_of([](Json& j) { j.erase("loss"); }),
              HasSubstr("the field \"loss\" is missing"));
  EXPECT_THAT(error_of([](Json& j) { j["loss"] = -1; }), HasSubstr("loss: expected an integer"));
  EXPECT_EQ(error_of([](Json& j) { j["dtype"] = "float99"; }),
            "f.json: dtype: unknown dtype \"float99\"");
  EXPECT_EQ(error_of([](Json& j) { j["dtype"] = "float64"; }),
            "f.json: dtype: \"float64\", but the first parameter is float32");
  EXPECT_EQ(error_of([](Json& j) { j["ops"] = "x"; }), "f.json: ops: expected a list, found \"x\"");
}

// Of a tensor of this shape and these strides.
bool channels_last(const Json& shape, const Json& strides) {
  Json json = parse_json(kText, "f.json");
  json["tensors"][0]["shape"] = shape;
  json["tensors"][0]["strides"] = strides;
  return parse_graph(json.dump(), "f.json").tensor(TensorId(0)).channels_last;
}

TEST(GraphIo, OrderInMemory) {
  EXPECT_TRUE(channels_last({"B", 3, 4, 5}, {60, 1, 15, 3}));
  EXPECT_TRUE(channels_last({"B", 3, 2, 4, 5}, {120, 1, 60, 15, 3}));
  EXPECT_TRUE(channels_last({2, 3, "B", 5}, {"15B", 1, 15, 3}));
  // One row, one column or one sample lies anywhere.
  EXPECT_TRUE(channels_last({"B", 3, 1, 5}, {15, 1, 7, 3}));
  EXPECT_FALSE(channels_last({"B", 3, 4, 5}, {60, 20, 5, 1}));   // contiguous
  EXPECT_FALSE(channels_last({"B", 3, 4, 5}, {60, 1, 3, 12}));   // columns before rows
  EXPECT_FALSE(channels_last({"B", 3, 4, 5}, {120, 1, 30, 6}));  // every other element
  EXPECT_FALSE(channels_last({"B", 3, 4}, {12, 1, 3}));
}

TEST(GraphIo, Tensors) {
  const auto with = [](const char* key, const Json& value) {
    return error_of([&](Json& j) { j["tensors"][0][key] = value; });
  };
  EXPECT_EQ(with("dtype", "float99"), "f.json: tensors[0].dtype: unknown dtype \"float99\"");
  EXPECT_EQ(with("role", "loss"), "f.json: tensors[0].role: unknown role \"loss\"");
  EXPECT_EQ(with("name", 3), "f.json: tensors[0].name: expected a string, found 3");
  EXPECT_THAT(with("size", 3), HasSubstr("f.json: tensors[0]: unknown key \"size\", expected one"));
  EXPECT_EQ(with("shape", 3), "f.json: tensors[0].shape: expected a list of sizes, found 3");
  EXPECT_THAT(with("shape", {"4C"}), HasSubstr("tensors[0].shape: expected a size"));
  EXPECT_THAT(with("shape", {2.5}), HasSubstr("found 2.5"));
  EXPECT_THAT(with("shape", {std::uint64_t{1} << 63}), HasSubstr("expected a size"));
  EXPECT_THAT(with("shape", {-7, 1, 1}), HasSubstr("the size -7 is negative"));
  EXPECT_THAT(with("strides", {"x"}), HasSubstr("tensors[0].strides: expected a size"));
  EXPECT_EQ(with("strides", {1, 3}), "f.json: tensors[0].strides: 2 of them for 3 dimensions");
  EXPECT_THAT(with("of", -1), HasSubstr("of: expected the number of a tensor, found -1"));
  EXPECT_THAT(with("of", 4294967295u), HasSubstr("expected the number of a tensor"));
  EXPECT_THAT(error_of([](Json& j) { j["tensors"][1].erase("shape"); }),
              HasSubstr("f.json: tensors[1]: the field \"shape\" is missing"));
  EXPECT_THAT(error_of([](Json& j) { j["tensors"][1] = 5; }),
              HasSubstr("f.json: tensors[1]: expected an object, found 5"));
}

TEST(GraphIo, Ops) {
  const auto with = [](const char* key, const Json& value) {
    return error_of([&](Json& j) { j["ops"][1][key] = value; });
  };
  EXPECT_EQ(with("phase", "sideways"), "f.json: ops[1].phase: unknown phase \"sideways\"");
  EXPECT_THAT(with("op", "mul"),
              HasSubstr("ops[1].op: \"mul\" is no operator that a graph may hold"));
  EXPECT_THAT(with("forward", "a"),
              HasSubstr("ops[1].forward: expected the number of a forward op, found \"a\""));
  EXPECT_THAT(with("args", 3), HasSubstr("ops[1].args: expected a list, found 3"));
  EXPECT_THAT(with("kwargs", 3), HasSubstr("ops[1].kwargs: expected an object, found 3"));
  EXPECT_THAT(with("outputs", {"%3"}),
              HasSubstr("ops[1].outputs: expected the number of a tensor"));
  EXPECT_THAT(with("inputs", 3), HasSubstr("ops[1]: unknown key \"inputs\", expected one of name"));
  EXPECT_THAT(with("args", {"hello"}), HasSubstr("cannot read the argument \"hello\""));
  EXPECT_THAT(with("args", {{{"a", 1}}}), HasSubstr("an argument cannot be an object"));
  EXPECT_THAT(with("args", {std::uint64_t{1} << 63}), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(with("args", {"%77"}), HasSubstr("ops[1] (b).args: no tensor 77, there are 6"));
  EXPECT_THAT(error_of([](Json& j) { j["ops"][1].erase("args"); }),
              HasSubstr("f.json: ops[1]: the field \"args\" is missing"));
}

TEST(GraphIo, OperatorsThatDoMoreThanComputeAreRefused) {
  for (const char* type :
       {"aten.from_file.default", "aten.fill_.Scalar", "aten.set_.source_Storage", "aten.add.out",
        "aten.rand.generator", "aten.item.default", "aten.foo.default", "prims.add.default",
        "mylib.fancy.default", "aten.mm", "", "aten.mm.default\n"}) {
    const std::string error = error_of([&](Json& j) { j["ops"][1]["op"] = type; });
    EXPECT_THAT(error, HasSubstr("f.json: ops[1].op: ")) << type;
    EXPECT_THAT(error, HasSubstr("is no operator that a graph may hold")) << type;
  }
  EXPECT_EQ(error_of([](Json& j) { j["ops"][1]["op"] = "aten.atan2.default"; }), "no error");
}

}  // namespace
}  // namespace heterog::graph

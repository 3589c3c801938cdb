// Distinct ops, operands as a step has them, and profiles of real graphs.
#include "measure/profiler.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "cluster/cluster_io.h"
#include "graph/graph_io.h"
#include "measure/distinct_ops.h"
#include "measure/links.h"
#include "measure/step_time.h"
#include "measure/timing.h"
#include "runtime/kernels/operands.h"
#include "runtime/kernels/tensor_memory.h"
#include "support/graphs.h"

namespace heterog::measure {
namespace {

using graph::ModelGraph;
using graph::tensor_value;
using graph::TensorRole;
using support::GraphMaker;
using support::kB;
using support::n;
using testing::ElementsAre;
using testing::HasSubstr;

// Two products of the same form, one of the same shapes that reads its weight transposed, and one
// of another size; an op that has nothing of the batch.
ModelGraph products() {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(8)});
  const TensorId a = maker.parameter("a", {n(8), n(8)});
  const TensorId b = maker.parameter("b", {n(8), n(8)});
  const TensorId c = maker.parameter("c", {n(8), n(4)});
  const std::string mm = "aten.mm.default";
  const TensorId first = maker.op(mm, {tensor_value(x), tensor_value(a)}, {kB, n(8)});
  const TensorId turned = maker.op("aten.t.default", {tensor_value(b)}, {n(8), n(8)});
  const TensorId second = maker.op(mm, {tensor_value(first), tensor_value(b)}, {kB, n(8)});
  const TensorId third = maker.op(mm, {tensor_value(second), tensor_value(turned)}, {kB, n(8)});
  const TensorId fourth = maker.op(mm, {tensor_value(third), tensor_value(c)}, {kB, n(4)});
  maker.op("aten.mul.Tensor", {tensor_value(a), tensor_value(a)}, {n(8), n(8)});
  maker.loss(
      maker.op("aten.sum.default", {tensor_value(fourth)}, {}, {.role = TensorRole::kOutput}));
  return std::move(maker).build();
}

TEST(DistinctOps, AreGatheredByOperatorShapesAndViews) {
  const ModelGraph graph = products();
  const std::vector<DistinctOp> distinct = distinct_ops(graph);
  ASSERT_EQ(distinct.size(), 5u);
  EXPECT_EQ(distinct[0].form, "aten.mm.default(float32[B,8], float32[8,8])");
  EXPECT_THAT(distinct[0].ops, ElementsAre(OpId(0), OpId(2)));
  EXPECT_EQ(distinct[1].form, "aten.mm.default(float32[B,8], aten.t.default(float32[8,8]))");
  EXPECT_THAT(distinct[1].ops, ElementsAre(OpId(3)));
  EXPECT_EQ(distinct[2].form, "aten.mm.default(float32[B,8], float32[8,4])");
  EXPECT_EQ(distinct[3].form, "aten.mul.Tensor(float32[8,8], =0)");
  EXPECT_TRUE(distinct[0].batched);
  EXPECT_FALSE(distinct[3].batched);
  EXPECT_TRUE(distinct[4].batched);
}

TEST(DistinctOps, CoverEveryOpOfAModelOnce) {
  const ModelGraph graph = graph::read_graph("models/bert_large24.json.gz");
  std::set<OpId> seen;
  std::size_t computing = 0;
  const std::vector<DistinctOp> distinct = distinct_ops(graph);
  for (const DistinctOp& one : distinct) {
    for (OpId op : one.ops) {
      EXPECT_TRUE(seen.insert(op).second);
      EXPECT_EQ(form_of(graph, op), one.form);
    }
  }
  for (OpId op : graph.op_ids()) computing += graph.op(op).alias ? 0 : 1;
  EXPECT_EQ(seen.size(), computing);
  EXPECT_LT(distinct.size() * 10, computing) << "24 layers are alike";
}

TEST(Operands, LieInMemoryAsTheirViewsSay) {
  const ModelGraph graph = products();
  const std::vector<at::Tensor> values = runtime::random_operands(graph, OpId(3), 5, at::kCPU);
  EXPECT_THAT(values[0].sizes().vec(), ElementsAre(5, 8));
  EXPECT_THAT(values[1].strides().vec(), ElementsAre(1, 8));
  EXPECT_EQ(values[0].scalar_type(), at::kFloat);
  const auto squared = runtime::random_operands(graph, OpId(5), 5, at::kCPU);
  EXPECT_TRUE(squared[0].is_same(squared[1])) << "one tensor read twice is one";
}

TEST(Median, IgnoresOutliers) {
  EXPECT_EQ(median({5, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 100}), 3);
  // Distances from 2: 1, 0, 98, 0, 1.
  const Robust summary = robust({1, 2, 100, 2, 3});
  EXPECT_EQ(summary.median, 2);
  EXPECT_EQ(summary.spread, 1);
}

TEST(Timing, SeesThatMoreWorkTakesLonger) {
  const ModelGraph graph = products();
  // The shortest of several: what else runs on the machine only lengthens them.
  const auto seconds = [&](std::int64_t samples) {
    const auto operands = runtime::random_operands(graph, OpId(0), samples, at::kCPU);
    const runtime::PreparedOp op(graph, OpId(0), operands, {.slice = samples, .whole = samples},
                                 {});
    const std::vector<std::function<void()>> calls = {[&] { op.call(); }};
    double least = time_calls(calls, at::kCPU, 1).median;
    for (int i = 0; i < 9; ++i) least = std::min(least, time_calls(calls, at::kCPU, 1).median);
    return least;
  };
  EXPECT_GT(seconds(1 << 18), 5 * seconds(1));
}

TEST(Links, HaveALatencyAndABandwidth) {
  const cost::ProfiledLink link = measure_loopback(1);
  EXPECT_GE(link.measured.size(), 5u);
  for (std::size_t i = 0; i < link.measured.size(); ++i) EXPECT_GT(link.measured[i].seconds, 0);
  EXPECT_GE(link.latency_seconds, 0);
  EXPECT_GT(link.bytes_per_second, 0);
}

ProfilerOptions quick() { return {.device = "CPU", .repeat = 1, .slices = {1, 3}}; }

TEST(Profiler, MeasuresEveryOpOfATinyModel) {
  const ModelGraph graph = graph::read_graph("models/lenet5-tiny.json.gz");
  double last = -1;
  const cost::Profile profile = measure_profile(graph, quick(), begin_profile(graph, quick()),
                                                {.progress = [&](double done, const std::string&) {
                                                  EXPECT_GT(done, last);
                                                  EXPECT_LT(done, 1);
                                                  last = done;
                                                }});
  EXPECT_TRUE(profile.finished);
  EXPECT_EQ(profile.graph_hash, graph.hash());
  EXPECT_EQ(profile.links.size(), 1u);
  std::set<std::string> ops;
  std::size_t batched = 0;
  for (const cost::ProfiledOperator& op : profile.operators) {
    ops.insert(op.ops.begin(), op.ops.end());
    EXPECT_GT(op.fit.at(1), 0) << op.form;
    const bool depends = op.form.find('B') != std::string::npos;
    batched += depends ? 1 : 0;
    EXPECT_EQ(op.measured.size(), depends ? 2u : 1u) << op.form;
    for (const cost::Measurement& m : op.measured) EXPECT_GT(m.seconds, 0) << op.form;
  }
  EXPECT_GT(batched, 10u);
  for (OpId op : graph.op_ids()) {
    EXPECT_EQ(ops.contains(graph.op(op).name), !graph.op(op).alias) << graph.op(op).name;
  }
}

// Masks of dropout are the runtime's own; PyTorch's operator would take another time.
TEST(Profiler, TimesTheOperatorsThatTheRuntimeRuns) {
  const ModelGraph graph = graph::read_graph("tests/data/transformer_dropout.json.gz");
  static std::set<std::string> called;
  called.clear();
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                   called.insert(call.name());
                                   return std::unique_ptr<at::ObserverContext>();
                                 }).scopes({at::RecordScope::FUNCTION}));
  at::globalContext().setAllowTF32CuBLAS(!graph.tf32().products);
  at::globalContext().setAllowTF32CuDNN(!graph.tf32().convolutions);
  ProfilerOptions options = quick();
  options.slices = {2};
  measure_profile(graph, options, begin_profile(graph, options), {});
  at::removeCallback(handle);
  EXPECT_TRUE(called.contains("aten::addmm") || called.contains("aten::mm"));
  EXPECT_FALSE(called.contains("aten::native_dropout"));
  EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), graph.tf32().products);
  EXPECT_EQ(at::globalContext().allowTF32CuDNN(), graph.tf32().convolutions);
}

// No card that is known keeps them all in its cache; nor does this machine.
TEST(Profiler, OperandsTakeTurnsBeyondTheCaches) {
  for (const auto& [name, type] : cluster::read_devices("configs/devices.json")) {
    EXPECT_LE(type.cache_bytes, bytes_that_take_turns({.gpu = true})) << name;
  }
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(1024)});
  const TensorId w = maker.parameter("w", {n(1024), n(1024)});  // 4 MiB
  const TensorId y = maker.op("aten.mm.default", {tensor_value(x), tensor_value(w)}, {kB, n(1024)});
  maker.loss(maker.op("aten.sum.default", {tensor_value(y)}, {}, {.role = TensorRole::kOutput}));
  const ModelGraph graph = std::move(maker).build();
  ProfilerOptions options = quick();
  options.slices = {1};
  runtime::count_tensor_memory(at::kCPU);
  const Bytes before = runtime::tensor_memory(at::kCPU).now;
  runtime::begin_most(at::kCPU);
  measure_profile(graph, options, begin_profile(graph, options), {});
  EXPECT_GE(runtime::tensor_memory(at::kCPU).most - before, bytes_that_take_turns(options));
}

TEST(Profiler, GoesOnWhereItWasInterrupted) {
  const ModelGraph graph = support::tiny_mlp_graph();
  int asked = 0;
  std::size_t saved = 0;
  const cost::Profile part = measure_profile(
      graph, quick(), begin_profile(graph, quick()),
      {.save = [&](const cost::Profile& so_far) { saved = so_far.operators.size(); },
       .expired = [&] { return ++asked == 3; }});
  EXPECT_FALSE(part.finished);
  EXPECT_EQ(part.operators.size(), 3u);
  EXPECT_EQ(saved, 3u);
  const cost::Profile whole = measure_profile(graph, quick(), part, {});
  EXPECT_TRUE(whole.finished);
  EXPECT_EQ(whole.operators.size(), distinct_ops(graph).size());
  for (std::size_t i = 0; i < part.operators.size(); ++i) {
    EXPECT_EQ(whole.operators[i].measured[0].seconds, part.operators[i].measured[0].seconds);
  }
  EXPECT_EQ(whole.links[0].latency_seconds, part.links[0].latency_seconds);
}

TEST(Profiler, NamesAnOpThatDoesNotRun) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(8)});
  const TensorId w = maker.parameter("w", {n(7), n(4)});  // 8 and 7 do not go together
  const TensorId y = maker.op("aten.mm.default", {tensor_value(x), tensor_value(w)}, {kB, n(4)});
  maker.loss(maker.op("aten.sum.default", {tensor_value(y)}, {}, {.role = TensorRole::kOutput}));
  const ModelGraph graph = std::move(maker).build();
  try {
    measure_profile(graph, quick(), begin_profile(graph, quick()), {});
    ADD_FAILURE() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kVerification);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aten.mm.default"), HasSubstr("does not run")));
  }
}

// 2^32 rows of 16 floats: an allocation of 275 GB may succeed, and filling it would not.
TEST(Profiler, RefusesWhatTheHostHasNoMemoryFor) {
  GraphMaker maker;
  const TensorId x = maker.input("x", {kB, n(8)});
  const TensorId w = maker.parameter("w", {n(std::int64_t{1} << 32), n(16)});
  const TensorId y =
      maker.op("aten.relu.default", {tensor_value(w)}, {n(std::int64_t{1} << 32), n(16)});
  maker.op("aten.relu.default", {tensor_value(x)}, {kB, n(8)});
  maker.loss(maker.op("aten.sum.default", {tensor_value(y)}, {}, {.role = TensorRole::kOutput}));
  const ModelGraph graph = std::move(maker).build();
  const auto refused = [](const auto& measure) {
    try {
      measure();
      ADD_FAILURE() << "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kVerification);
      EXPECT_THAT(error.what(), HasSubstr("would take 274.9 GB, this host has"));
    }
  };
  refused([&] { measure_profile(graph, quick(), begin_profile(graph, quick()), {}); });
  refused([&] { measure_step(graph, {.samples = 2, .repeat = 1}); });
}

// What the libraries below PyTorch throw is its error like any other: oneDNN has no convolution of
// so wide a stride here.
TEST(Profiler, NamesAnOpThatALibraryRefuses) {
  const std::string text = support::graph_text(graph::read_graph("models/lenet5-tiny.json.gz"));
  nlohmann::json json = nlohmann::json::parse(text);
  for (nlohmann::json& op : json["ops"]) {
    if (op["op"] == "aten.convolution_backward.default") op["args"][4][0] = 28;
  }
  const ModelGraph graph = graph::parse_graph(json.dump(), "damaged");
  try {
    measure_profile(graph, quick(), begin_profile(graph, quick()), {});
    ADD_FAILURE() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kVerification);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("convolution_backward"), HasSubstr("does not run")));
  }
}

TEST(Step, RunsWholeModelsAndTakesLongerForMore) {
  for (const char* name : {"lenet5-tiny", "bert_large24-tiny"}) {
    const ModelGraph graph = graph::read_graph(std::string("models/") + name + ".json.gz");
    // The shortest of several: what else runs on the machine only lengthens them.
    double few = measure_step(graph, {.samples = 2, .repeat = 1});
    for (int i = 0; i < 5; ++i)
      few = std::min(few, measure_step(graph, {.samples = 2, .repeat = 1}));
    EXPECT_GT(few, 0) << name;
    EXPECT_GT(measure_step(graph, {.samples = 512, .repeat = 1}), few) << name;
  }
}

TEST(Profiler, RefusesAGpuThatIsNotThere) {
  if (at::hasCUDA()) GTEST_SKIP() << "this machine has one";
  const ModelGraph graph = support::tiny_mlp_graph();
  ProfilerOptions options = quick();
  options.device = "T4";
  options.gpu = true;
  EXPECT_THROW(begin_profile(graph, options), Error);
}

}  // namespace
}  // namespace heterog::measure

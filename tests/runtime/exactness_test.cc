// That plans train as one device where it is easily lost: gradients that travel as rows, values
// that stay and are read here and written there; and that the one device knows nothing of the plan.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/rng.h"
#include "runtime/jobs.h"
#include "runtime/team.h"

namespace heterog::runtime {
namespace {

using compiler::SyncMethod;
using graph::float_value;
using graph::int_value;
using graph::list_value;
using graph::Phase;
using graph::tensor_value;
using graph::TensorRole;
using support::GraphMaker;
using support::kB;
using support::n;

constexpr double kTolerance = 1e-10;  // relative, in double precision (DESIGN §5.12)

double off_by(std::shared_ptr<const cost::Problem> problem, const compiler::Strategy& strategy) {
  const TestJob test = make_test_job(problem, strategy);
  return verify(test.job, test.plan, {.steps = 3}).worst_relative();
}

// ---- a reference that shares nothing with the plan's slices ----

// loss = Σ x[B−1−i] · x[i] · w: its rows cannot be found on a slice.
struct Flipped {
  graph::ModelGraph graph;
  TensorId numbers, rows;
};

Flipped flipped_rows() {
  GraphMaker maker("flipped");
  const TensorId x = maker.input("x", {kB, n(4)});
  const TensorId weight = maker.parameter("weight", {n(4)});
  const TensorId numbers =
      maker.op("aten.arange.start_step", {graph::size_value(1, -1), int_value(-1), int_value(-1)},
               {kB}, {.dtype = graph::DType::kInt64});
  const TensorId rows = maker.op(
      "aten.index.Tensor", {tensor_value(x), list_value({tensor_value(numbers)})}, {kB, n(4)});
  const TensorId product =
      maker.op("aten.mul.Tensor", {tensor_value(rows), tensor_value(x)}, {kB, n(4)});
  const TensorId weighted =
      maker.op("aten.mul.Tensor", {tensor_value(product), tensor_value(weight)}, {kB, n(4)});
  maker.loss(
      maker.op("aten.sum.default", {tensor_value(weighted)}, {}, {.role = TensorRole::kOutput}));
  const TensorId gradient =
      maker.op("aten.sum.dim_IntList", {tensor_value(product), list_value({int_value(0)})}, {n(4)},
               {.phase = Phase::kBackward, .role = TensorRole::kGradient, .of = weight});
  const TensorId change = maker.op("aten.mul.Scalar", {tensor_value(gradient), float_value(0.1)},
                                   {n(4)}, {.phase = Phase::kUpdate});
  maker.op("aten.sub.Tensor", {tensor_value(weight), tensor_value(change)}, {n(4)},
           {.phase = Phase::kUpdate, .role = TensorRole::kOutput, .replaces = weight});
  return {std::move(maker).build(), numbers, rows};
}

// The problem under a split rule that is wrong: row numbers that are those of a slice.
std::shared_ptr<const cost::Problem> with_local_rows(const cost::Problem& problem, TensorId numbers,
                                                     TensorId rows) {
  const graph::ModelGraph& graph = *problem.graph;
  auto splits = std::make_shared<graph::SplitAnalysis>(*problem.splits);
  splits->rules[numbers] = {graph::SplitKind::kLocal};
  splits->rules[rows] = {graph::SplitKind::kConcat};
  for (TensorId id : {numbers, rows}) splits->sliceable[graph.tensor(id).producer] = 1;
  splits->uses = {};
  for (OpId op : graph.op_ids()) {
    std::vector<graph::OperandUse> uses(problem.splits->uses[op].begin(),
                                        problem.splits->uses[op].end());
    if (op == graph.tensor(rows).producer) {
      uses = {graph::OperandUse::kSlice, graph::OperandUse::kLocal};
    }
    splits->uses.push_row(uses);
  }
  auto wrong = std::make_shared<cost::Problem>(problem);
  wrong->folded =
      std::make_shared<graph::FoldedGraph>(graph::fold_aliases(*problem.graph, *splits));
  wrong->splits = std::move(splits);
  return wrong;
}

// A plan is cut by the analysis; the one device knows nothing of it, and so finds its mistakes.
TEST(VerifyItself, FindsAWrongSplitRule) {
  Flipped flipped = flipped_rows();
  const auto right = compiler::toy_problem(std::move(flipped.graph), 2, 8);
  const auto wrong = with_local_rows(*right, flipped.numbers, flipped.rows);
  const auto verified = [&](const std::vector<double>& weights) {
    return off_by(wrong, weighted(*wrong, weights, SyncMethod::kAllReduce));
  };
  EXPECT_LE(verified({1}), kTolerance);
  EXPECT_GT(verified({1, 1}), 1e-3);
  EXPECT_GT(verified({1, 3}), 1e-3);
}

TEST(VerifyItself, CountsWhatTheOneDeviceDoesNotRunAsItStands) {
  const auto exceptions = [](const char* graph, const std::vector<double>& weights) {
    const std::shared_ptr<const cost::Problem> problem =
        compiler::toy_problem(graph::read_graph(graph), 2, 8);
    const TestJob test =
        make_test_job(problem, weighted(*problem, weights, SyncMethod::kAllReduce));
    return verify(test.job, test.plan, {.steps = 1}).exceptions;
  };
  EXPECT_EQ(exceptions("tests/data/batch_norm_sgd.json.gz", {1, 1}).batch_norms, 4);
  EXPECT_EQ(exceptions("tests/data/batch_norm_sgd.json.gz", {1}).batch_norms, 0);
  EXPECT_EQ(exceptions("tests/data/exact_batch_norm.json.gz", {1, 1}).batch_norms, 0);
  EXPECT_EQ(exceptions("tests/data/transformer_dropout.json.gz", {1, 1}).masks, 8);
  EXPECT_EQ(exceptions("tests/data/mlp_sgd.json.gz", {1, 1}).masks, 0);
}

// ---- gradients that travel as rows ----

struct Table {
  std::int64_t rows = 1, width = 1, words = 1;
  bool twice = false;  // looked up by two inputs of so many words
};

// loss = Σ table[words] · g, plain SGD.
graph::ModelGraph lookups(const Table& of) {
  GraphMaker maker("lookups");
  const TensorId table = maker.parameter("table", {n(of.rows), n(of.width)});
  const graph::Value no{.kind = graph::Value::Kind::kBool, .integer = {0, 0}};
  std::vector<TensorId> losses, gradients;
  for (int i = 0; i < (of.twice ? 2 : 1); ++i) {
    const TensorId words =
        maker.input(fmt::format("words{}", i), {kB, n(of.words)}, graph::DType::kInt64);
    const GraphMaker::Shape shape = {kB, n(of.words), n(of.width)};
    const TensorId g = maker.input(fmt::format("g{}", i), shape);
    const TensorId found =
        maker.op("aten.embedding.default", {tensor_value(table), tensor_value(words)}, shape);
    const TensorId product =
        maker.op("aten.mul.Tensor", {tensor_value(found), tensor_value(g)}, shape);
    losses.push_back(maker.op("aten.sum.default", {tensor_value(product)}, {},
                              {.role = of.twice ? TensorRole::kActivation : TensorRole::kOutput}));
    support::OpOptions backward{.phase = Phase::kBackward, .forward = maker.maker(found)};
    if (!of.twice) backward.role = TensorRole::kGradient, backward.of = table;
    gradients.push_back(
        maker.op("aten.embedding_dense_backward.default",
                 {tensor_value(g), tensor_value(words), int_value(of.rows), int_value(-1), no},
                 {n(of.rows), n(of.width)}, backward));
  }
  TensorId loss = losses[0], gradient = gradients[0];
  if (of.twice) {
    loss = maker.op("aten.add.Tensor", {tensor_value(losses[0]), tensor_value(losses[1])}, {},
                    {.role = TensorRole::kOutput});
    gradient = maker.op("aten.add.Tensor", {tensor_value(gradients[0]), tensor_value(gradients[1])},
                        {n(of.rows), n(of.width)},
                        {.phase = Phase::kBackward, .role = TensorRole::kGradient, .of = table});
  }
  maker.loss(loss);
  const TensorId change = maker.op("aten.mul.Scalar", {tensor_value(gradient), float_value(0.1)},
                                   {n(of.rows), n(of.width)}, {.phase = Phase::kUpdate});
  maker.op("aten.sub.Tensor", {tensor_value(table), tensor_value(change)},
           {n(of.rows), n(of.width)},
           {.phase = Phase::kUpdate, .role = TensorRole::kOutput, .replaces = table});
  return std::move(maker).build();
}

// 12 rows of 40 B from each of two devices: as many bytes as the table of 30 rows of 32 B.
TEST(Rows, ThatWeighAsMuchAsTheTableTrainAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      compiler::toy_problem(lookups({.rows = 30, .width = 8, .words = 3}), 2, 8);
  const auto even = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  const compiler::Plan plan = compiler::compile(*problem, even, {});
  bool gathers = false;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != compiler::TaskKind::kAllReduce) continue;
    gathers |= plan.payload[task] == compiler::Payload::kRows && plan.moved_bytes[task] == 960;
  }
  EXPECT_TRUE(gathers);
  EXPECT_LE(off_by(problem, even), kTolerance);
}

TEST(Rows, OfRandomTablesTrainAsOneDevice) {
  Rng rng(17);
  int as_rows = 0;
  for (int i = 0; i < 150; ++i) {
    Table table{.rows = 1 + static_cast<std::int64_t>(rng.below(60)),
                .width = 1 + static_cast<std::int64_t>(rng.below(12)),
                .words = 1 + static_cast<std::int64_t>(rng.below(4)),
                .twice = rng.below(3) == 0};
    const std::size_t devices = 2 + rng.below(3);
    auto batch = static_cast<std::int64_t>(devices + rng.below(14));
    // Rows of 40 B with their indices, of all devices as many bytes as the table.
    const bool alike = i % 5 == 0;
    if (alike) {
      table.width = 8;
      table.rows = 5 * table.words * static_cast<std::int64_t>(devices) * (table.twice ? 2 : 1);
      batch = 4 * static_cast<std::int64_t>(devices);
    }
    SCOPED_TRACE(fmt::format("{}: table {} × {}, {} words, {}, {} devices, batch {}", i, table.rows,
                             table.width, table.words, table.twice ? "twice" : "once", devices,
                             batch));
    const std::shared_ptr<const cost::Problem> problem =
        compiler::toy_problem(lookups(table), devices, batch);
    compiler::Strategy strategy = random_mix(*problem, rng());
    if (alike || rng.below(2) == 0) {
      std::vector<double> weights;
      for (std::size_t d = 0; d < devices; ++d) {
        weights.push_back(alike ? 1 : static_cast<double>(1 + rng.below(4)));
      }
      strategy = weighted(*problem, weights,
                          rng.below(2) ? SyncMethod::kAllReduce : SyncMethod::kParameterServer);
    }
    const TestJob test = make_test_job(problem, strategy);
    for (compiler::Payload payload : test.plan.payload) {
      as_rows += payload == compiler::Payload::kRows ? 1 : 0;
    }
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), kTolerance);
  }
  EXPECT_GT(as_rows, 100);
}

// What asks a device for a number waits until it has done all that was asked of it before.
TEST(Rows, AreFoundWithoutWaitingForTheDevice) {
  static std::atomic<int> waits, packs;
  static std::atomic<bool> counts;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call)
                                     -> std::unique_ptr<at::ObserverContext> {
        if (!counts) return nullptr;
        const std::string name = call.name();
        for (const char* waiting : {"aten::nonzero", "aten::item", "aten::_local_scalar_dense",
                                    "aten::unique", "aten::masked_select"}) {
          if (name == waiting) ++waits;
        }
        if (name == "aten::nonzero_static") ++packs;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    const std::shared_ptr<const cost::Problem> problem =
        compiler::toy_problem(lookups({.rows = 60, .width = 8, .words = 3}), 2, 8);
    const TestJob test = make_test_job(problem, weighted(*problem, {1, 1}, sync));
    Team team(test.job, IdVector<DeviceId, WorkerOptions>(2));
    const auto values = random_residents(*problem->graph, 1, Floats::kOwn);
    const auto inputs = random_inputs(*problem->graph, 8, 1, 1, Floats::kOwn);
    for (TensorId id : problem->graph->parameters()) team.set_resident(id, values[id]);
    counts = true;
    team.step(1, inputs);
    counts = false;
  }
  at::removeCallback(handle);
  EXPECT_GT(packs, 0);
  EXPECT_EQ(waits, 0);
}

}  // namespace
}  // namespace heterog::runtime

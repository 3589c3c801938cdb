// Gradients of embeddings travel as rows where that is smaller.
#include "compiler/emit/rows.h"

#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

using graph::int_value;
using graph::Phase;
using graph::tensor_value;
using support::GraphMaker;
using support::kB;
using support::n;

// A lookup of 3 words a sample in a table of 100 rows of 8 floats (3200 B), its backward, SGD.
// Twice: two lookups share the table. Tied: its gradient has a full addend, as where it is an
// output layer too.
struct Lookup {
  std::unique_ptr<const cost::Problem> problem;
  TensorId table, gradient;
};

enum class Use { kOnce, kTwice, kTied };

Lookup lookup(std::int64_t batch, std::size_t machines, Use use = Use::kOnce, double overhead = 0) {
  GraphMaker make;
  const TensorId words = make.input("words", {kB, n(3)}, graph::DType::kInt64);
  const TensorId upstream = make.input("g", {kB, n(3), n(8)});
  const TensorId lr = make.input("lr", {});
  Lookup result;
  result.table = make.parameter("table", {n(100), n(8)});
  const TensorId found =
      make.op("aten.embedding.default", {tensor_value(result.table), tensor_value(words)},
              {kB, n(3), n(8)});
  support::OpOptions backward{.phase = Phase::kBackward, .forward = make.maker(found)};
  const graph::Value no{.kind = graph::Value::Kind::kBool, .integer = {0, 0}};
  const auto lookup_gradient = [&] {
    return make.op("aten.embedding_dense_backward.default",
                   {tensor_value(upstream), tensor_value(words), int_value(100), int_value(-1), no},
                   {n(100), n(8)}, backward);
  };
  result.gradient = lookup_gradient();
  if (use != Use::kOnce) {
    TensorId other;
    if (use == Use::kTwice) {
      other = lookup_gradient();
    } else {
      const TensorId scores = make.input("scores", {kB, n(100)});
      const TensorId hidden = make.input("hidden", {kB, n(8)});
      const TensorId turned =
          make.op("aten.t.default", {tensor_value(scores)}, {n(100), kB}, backward);
      other = make.op("aten.mm.default", {tensor_value(turned), tensor_value(hidden)},
                      {n(100), n(8)}, backward);
    }
    result.gradient =
        make.op("aten.add.Tensor", {tensor_value(result.gradient), tensor_value(other)},
                {n(100), n(8)}, backward);
  }
  const TensorId step =
      make.op("aten.mul.Tensor", {tensor_value(result.gradient), tensor_value(lr)}, {n(100), n(8)},
              {.phase = Phase::kUpdate});
  make.op("aten.sub.Tensor", {tensor_value(result.table), tensor_value(step)}, {n(100), n(8)},
          {.phase = Phase::kUpdate, .role = graph::TensorRole::kOutput, .replaces = result.table});
  result.problem = decide::toy_problem(std::move(make).build(), machines, batch, overhead);
  return result;
}

decide::Strategy on_all(const cost::Problem& problem, std::vector<double> weights,
                        decide::SyncMethod sync) {
  decide::UnitDecision decision;
  decision.sync = sync;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    decision.replicas.push_back({DeviceId(i), weights[i]});
  }
  return decide::uniform_strategy(problem, decision);
}

std::vector<TaskId> of_kind(const Plan& plan, TaskKind kind) {
  std::vector<TaskId> found;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == kind) found.push_back(task);
  }
  return found;
}

// A sample looks up 3 rows of 32 B by indices of 8: 120 B. The table is 3200.
TEST(Rows, AreThoseThatASliceLooksUp) {
  const Lookup t = lookup(40, 2);
  EXPECT_EQ(sparse_rows(*t.problem, t.gradient, 1)->bytes, 120);
  EXPECT_EQ(sparse_rows(*t.problem, t.gradient, 1)->count, 3);
  EXPECT_EQ(sparse_rows(*t.problem, t.gradient, 27)->bytes, 3240);
  const Lookup twice = lookup(40, 2, Use::kTwice);
  EXPECT_EQ(sparse_rows(*twice.problem, twice.gradient, 1)->bytes, 240);
  const Lookup tied = lookup(40, 2, Use::kTied);
  EXPECT_EQ(sparse_rows(*tied.problem, tied.gradient, 1), std::nullopt);
}

// Slices of 2 and 6 of 8 samples: device 0 serves and gets 720 B, device 1 serves and gets 240. The
// table is pulled whole.
TEST(Rows, ArePushedToAServer) {
  const Lookup t = lookup(8, 2);
  decide::Strategy strategy = on_all(*t.problem, {1, 3}, decide::SyncMethod::kParameterServer);
  for (std::size_t server : {0, 1}) {
    strategy.sync = {{t.table, decide::SyncMethod::kParameterServer, DeviceId(server)}};
    const Plan plan = compile(*t.problem, strategy);
    const auto pushes = of_kind(plan, TaskKind::kPush);
    ASSERT_EQ(pushes.size(), 1u);
    EXPECT_EQ(plan.moved_bytes[pushes[0]], server == 0 ? 720 : 240);
    ASSERT_EQ(of_kind(plan, TaskKind::kSum).size(), 1u);
    EXPECT_EQ(plan.moved_bytes[of_kind(plan, TaskKind::kPull)[0]], 3200);
    // What has arrived takes the room of the rows; they are added in place.
    for (BufferId buffer : plan.allocates[pushes[0]]) {
      EXPECT_EQ(plan.buffers[buffer].bytes, plan.moved_bytes[pushes[0]]);
    }
    EXPECT_TRUE(plan.allocates[of_kind(plan, TaskKind::kSum)[0]].empty());
  }
}

// Three devices with 2, 2 and 4 samples: all send 480 B, the longest, to both others: 1440 in all,
// of which each card carries 2/3, 960 ns. Then each device adds what came from the others.
TEST(Rows, AreGatheredInPlaceOfAnAllReduce) {
  const Lookup t = lookup(8, 3);
  const Plan plan =
      compile(*t.problem, on_all(*t.problem, {1, 1, 2}, decide::SyncMethod::kAllReduce));
  const auto gathers = of_kind(plan, TaskKind::kAllGather);
  ASSERT_EQ(gathers.size(), 1u);
  EXPECT_EQ(plan.moved_bytes[gathers[0]], 1440);
  EXPECT_EQ(plan.duration[gathers[0]], 960);
  for (const Hold& hold : plan.holds[gathers[0]]) {
    if (hold.bytes > 0) {
      EXPECT_EQ(hold.bytes, 960);
    }
  }
  EXPECT_EQ(of_kind(plan, TaskKind::kSum).size(), 3u);
  const sim::SimResult result = sim::simulate(plan);
  for (TaskId update : of_kind(plan, TaskKind::kUpdate)) {
    EXPECT_GE(result.start[update], result.end[gathers[0]]);
  }
}

// As before; each device sends two thirds of the 1440 B and receives as many.
TEST(Rows, AGatherTakesOfItsMembersWhatTheySendAndReceive) {
  const Lookup t = lookup(8, 3, Use::kOnce, 1e-9);
  const Plan plan =
      compile(*t.problem, on_all(*t.problem, {1, 1, 2}, decide::SyncMethod::kAllReduce));
  const auto overheads = of_kind(plan, TaskKind::kOverhead);
  ASSERT_EQ(overheads.size(), 3u);
  for (TaskId task : overheads) EXPECT_EQ(plan.duration[task], 2 * 960);
}

// 60 samples on two devices: 30 each take 3600 B as rows, more than the table. 44: 22 each take
// 2640 B, less than the table but two of them as much as an all-reduce moves at 53 samples or more.
TEST(Rows, StayAtHomeWhereTheWholeIsSmaller) {
  for (const auto& [batch, gathered] :
       {std::pair{60, false}, {44, true}, {52, true}, {54, false}}) {
    const Lookup t = lookup(batch, 2);
    const Plan plan =
        compile(*t.problem, on_all(*t.problem, {1, 1}, decide::SyncMethod::kAllReduce));
    EXPECT_EQ(of_kind(plan, TaskKind::kAllGather).size(), gathered ? 1u : 0u) << batch;
    EXPECT_EQ(of_kind(plan, TaskKind::kAllReduce).size(), gathered ? 0u : 1u) << batch;
  }
  const Lookup t = lookup(60, 2);
  const Plan plan =
      compile(*t.problem, on_all(*t.problem, {1, 1}, decide::SyncMethod::kParameterServer));
  EXPECT_EQ(plan.moved_bytes[of_kind(plan, TaskKind::kPush)[0]], 3200);
}

TEST(Rows, ATiedTableHasAWholeGradient) {
  const Lookup t = lookup(8, 2, Use::kTied);
  const Plan plan =
      compile(*t.problem, on_all(*t.problem, {1, 1}, decide::SyncMethod::kParameterServer));
  EXPECT_EQ(plan.moved_bytes[of_kind(plan, TaskKind::kPush)[0]], 3200);
  const Plan reduced =
      compile(*t.problem, on_all(*t.problem, {1, 1}, decide::SyncMethod::kAllReduce));
  EXPECT_EQ(reduced.moved_bytes[of_kind(reduced, TaskKind::kAllReduce)[0]], 3200);
}

// BERT-large and GNMT (where encoder and decoder share one table): tables of words and of positions
// alike travel as rows or whole, whichever is smaller; every other gradient is whole.
TEST(Rows, OnRealGraphs) {
  for (const auto& [name, batch] : {std::pair{"bert_large24", 32}, {"gnmt4", 64}}) {
    const auto problem = decide::model_problem(name, 4, batch);
    const graph::ModelGraph& graph = *problem->graph;
    const Plan plan =
        compile(*problem, on_all(*problem, {1, 1, 1, 1}, decide::SyncMethod::kParameterServer));
    int shorter = 0;
    for (TaskId push : of_kind(plan, TaskKind::kPush)) {
      const TensorId gradient = plan.tensor[push];
      const Bytes whole = graph.bytes(gradient, batch);
      const auto maker = graph.type_name(graph.op(graph.tensor(gradient).producer).type);
      EXPECT_LE(plan.moved_bytes[push], whole);
      if (plan.moved_bytes[push] == whole) continue;
      EXPECT_TRUE(maker == "aten.embedding_dense_backward.default" || maker == "aten.add.Tensor");
      EXPECT_EQ(plan.moved_bytes[push], sparse_rows(*problem, gradient, batch / 4)->bytes);
      ++shorter;
    }
    EXPECT_GE(shorter, 3) << name;  // three workers push the table of words
  }
}

}  // namespace
}  // namespace heterog::compiler

// That plans train as one device where it is easily lost: gradients that travel as rows, values
// that stay and are read here and written there; and that the one device knows nothing of the plan.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/rng.h"
#include "compiler/check/check_bytes.h"
#include "runtime/exec/random_data.h"
#include "runtime/ranks/team.h"
#include "runtime/verified.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;
using graph::float_value;
using graph::int_value;
using graph::list_value;
using graph::Phase;
using graph::tensor_value;
using graph::TensorRole;
using support::GraphMaker;
using support::kB;
using support::n;

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
  const auto right = decide::toy_problem(std::move(flipped.graph), 2, 8);
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
        decide::toy_problem(graph::read_graph(graph), 2, 8);
    const TestJob test =
        make_test_job(problem, weighted(*problem, weights, SyncMethod::kAllReduce));
    return verify(test.job, test.plan, {.steps = 1}).exceptions;
  };
  EXPECT_EQ(exceptions("tests/data/batch_norm_sgd.json.gz", {1, 1}).batch_norms, 4);
  EXPECT_EQ(exceptions("tests/data/batch_norm_sgd.json.gz", {1}).batch_norms, 0);
  EXPECT_EQ(exceptions("tests/data/exact_batch_norm.json.gz", {1, 1}).batch_norms, 0);
  EXPECT_EQ(exceptions("tests/data/transformer_dropout.json.gz", {1, 1}).random, 8);
  EXPECT_EQ(exceptions("tests/data/mlp_sgd.json.gz", {1, 1}).random, 0);
}

// ---- gradients that travel as rows ----

using support::lookup_graph;
using Table = support::LookupTable;

// 12 rows of 40 B from each of two devices: as many bytes as the table of 30 rows of 32 B.
TEST(Rows, ThatWeighAsMuchAsTheTableTrainAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(lookup_graph({.rows = 30, .width = 8, .words = 3}), 2, 8);
  const auto even = weighted(*problem, {1, 1}, SyncMethod::kAllReduce);
  const compiler::Plan plan = compiler::compile(*problem, even, {});
  bool gathers = false;
  for (TaskId task : plan.task_ids()) {
    gathers |= plan.kind[task] == compiler::TaskKind::kAllGather && plan.moved_bytes[task] == 960;
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
    if (rng.below(3) == 0) table.rows = 30, table.width = 8;
    if (rng.below(2) == 0) table.gradient = graph::DType::kBFloat16;
    const std::size_t devices = 2 + rng.below(3);
    auto batch = static_cast<std::int64_t>(1 + rng.below(33));
    // Rows of 40 B with their indices, of all devices as many bytes as the table.
    const bool alike = i % 5 == 0;
    if (alike) table.gradient = graph::DType::kFloat32;
    if (alike) {
      table.width = 8;
      table.rows = 5 * table.words * static_cast<std::int64_t>(devices) * (table.twice ? 2 : 1);
      batch = 4 * static_cast<std::int64_t>(devices);
    }
    SCOPED_TRACE(fmt::format("{}: table {} × {}, {} words, {}, {}, {} devices, batch {}", i,
                             table.rows, table.width, table.words, table.twice ? "twice" : "once",
                             graph::dtype_name(table.gradient), devices, batch));
    const std::shared_ptr<const cost::Problem> problem =
        decide::toy_problem(lookup_graph(table), devices, batch);
    decide::Strategy strategy = random_mix(*problem, rng());
    if (alike || rng.below(2) == 0) {
      std::vector<double> weights;
      for (std::size_t d = 0; d < devices; ++d) {
        weights.push_back(alike ? 1 : static_cast<double>(1 + rng.below(4)));
      }
      strategy = weighted(*problem, weights,
                          rng.below(2) ? SyncMethod::kAllReduce : SyncMethod::kParameterServer);
    }
    const TestJob test = make_test_job(problem, strategy);
    for (const compiler::Contribution& one : test.plan.contributions.values()) {
      as_rows += one.encoding == compiler::Encoding::kRows ? 1 : 0;
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
        decide::toy_problem(lookup_graph({.rows = 60, .width = 8, .words = 3}), 2, 8);
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

// ---- batches that are not the first dimension ----

// loss = Σ layer_norm(x) · g over [3, B, 4]. The kernel of its backward reads the
// saved statistics as if they had no gaps.
graph::ModelGraph normalised_rows() {
  graph::GraphBuilder builder("normalised");
  const auto t = [](TensorId id) { return tensor_value(id); };
  const auto flag = [](bool set) {
    return graph::Value{.kind = graph::Value::Kind::kBool, .integer = {0, set ? 1 : 0}};
  };
  const GraphMaker::Shape rows = {n(3), kB, n(4)}, each = {n(3), kB, n(1)}, row = {n(4)};
  const TensorId x = builder.add_tensor({.name = "x", .role = TensorRole::kInput, .shape = rows});
  const TensorId g = builder.add_tensor({.name = "g", .role = TensorRole::kInput, .shape = rows});
  const TensorId weight =
      builder.add_tensor({.name = "weight", .role = TensorRole::kParameter, .shape = row});
  const auto make = [&](const std::string& name, GraphMaker::Shape shape) {
    return builder.add_tensor({.name = name, .shape = std::move(shape)});
  };
  const auto op = [&](const std::string& type, std::vector<graph::Value> args,
                      std::vector<TensorId> outputs, Phase phase = Phase::kForward) {
    builder.add_op({.name = fmt::format("op{}", outputs.back().valid() ? outputs.back().value()
                                                                       : outputs[1].value()),
                    .type = type,
                    .phase = phase,
                    .args = std::move(args),
                    .outputs = outputs});
  };
  const TensorId out = make("out", rows), mean = make("mean", each), scale = make("scale", each);
  const graph::Value sizes = list_value({int_value(4)}), none;
  op("aten.native_layer_norm.default", {t(x), sizes, t(weight), none, float_value(1e-5)},
     {out, mean, scale});
  const TensorId product = make("product", rows);
  op("aten.mul.Tensor", {t(out), t(g)}, {product});
  const TensorId loss = builder.add_tensor({.name = "loss", .role = TensorRole::kOutput});
  op("aten.sum.default", {t(product)}, {loss});
  builder.set_loss(loss);
  const TensorId gradient = builder.add_tensor(
      {.name = "gradient", .role = TensorRole::kGradient, .shape = row, .of = weight});
  op("aten.native_layer_norm_backward.default",
     {t(g), t(x), sizes, t(mean), t(scale), t(weight), none,
      list_value({flag(false), flag(true), flag(false)})},
     {TensorId(), gradient, TensorId()}, Phase::kBackward);
  const TensorId change = make("change", row);
  op("aten.mul.Scalar", {t(gradient), float_value(0.1)}, {change}, Phase::kUpdate);
  const TensorId next = builder.add_tensor(
      {.name = "next", .role = TensorRole::kOutput, .shape = row, .replaces = weight});
  op("aten.sub.Tensor", {t(weight), t(change)}, {next}, Phase::kUpdate);
  return std::move(builder).build("normalised rows");
}

TEST(Cuts, LeaveNoGapsThatAKernelWouldReadAsRows) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(normalised_rows(), 3, 11);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    // Forward and backward on slices of their own.
    const std::size_t ops = problem->graph->op_count();
    Rng rng(seed);
    decide::Strategy strategy;
    for (OpId op : problem->graph->op_ids()) strategy.unit_of_op.push_back(UnitId(op.value()));
    for (std::size_t i = 0; i < ops; ++i) {
      std::vector<decide::Replica> replicas;
      for (std::size_t d = 0; d < 3; ++d) {
        if (rng.below(3) > 0) {
          replicas.push_back({DeviceId(d), 1.0 + static_cast<double>(rng.below(5))});
        }
      }
      if (replicas.empty()) replicas = {{DeviceId(1), 1}};
      strategy.units.push_back({.replicas = replicas});
    }
    EXPECT_LE(off_by(problem, strategy), kTolerance);
  }
}

// ---- tensors without elements ----

// loss = Σ x · [weight, nothing], where nothing has no elements and an op of its own.
graph::ModelGraph with_nothing() {
  GraphMaker maker("nothing");
  const TensorId x = maker.input("x", {kB, n(4)});
  const TensorId weight = maker.parameter("weight", {n(4)});
  const TensorId none = maker.buffer("none", {n(0)});
  const TensorId nothing = maker.op("aten.neg.default", {tensor_value(none)}, {n(0)});
  const TensorId joined = maker.op(
      "aten.cat.default", {list_value({tensor_value(weight), tensor_value(nothing)})}, {n(4)});
  const TensorId product =
      maker.op("aten.mul.Tensor", {tensor_value(x), tensor_value(joined)}, {kB, n(4)});
  maker.loss(
      maker.op("aten.sum.default", {tensor_value(product)}, {}, {.role = TensorRole::kOutput}));
  const TensorId gradient =
      maker.op("aten.sum.dim_IntList", {tensor_value(x), list_value({int_value(0)})}, {n(4)},
               {.phase = Phase::kBackward, .role = TensorRole::kGradient, .of = weight});
  maker.op("aten.sub.Tensor", {tensor_value(weight), tensor_value(gradient)}, {n(4)},
           {.phase = Phase::kUpdate, .role = TensorRole::kOutput, .replaces = weight});
  return std::move(maker).build();
}

TEST(Exactness, OfOpsThatReadNothingFromElsewhere) {
  const std::shared_ptr<const cost::Problem> problem = decide::toy_problem(with_nothing(), 3, 7);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const TestJob test = make_test_job(problem, random_mix(*problem, seed));
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10) << seed;
  }
}

// ---- what stays between steps ----

// A loss, and buffers that the step replaces: of a parameter and read by nobody
// (spectral normalisation's u), a mean over the batch and read by nobody, a count, and a running
// level that several ops read, none of which makes its next value; and a state that all parameters'
// updates share.
graph::ModelGraph remembers() {
  GraphMaker maker("remembers");
  const GraphMaker::Shape row = {n(4)}, rows = {kB, n(4)};
  const TensorId x = maker.input("x", rows);
  const TensorId first = maker.parameter("first.weight", row);
  const TensorId second = maker.parameter("second.weight", row);
  const TensorId direction = maker.buffer("direction", row);
  const TensorId average = maker.buffer("average", row);
  const TensorId level = maker.buffer("level", row);
  const TensorId scale = maker.state("scale", row, {});
  const auto t = [](TensorId id) { return tensor_value(id); };
  const auto op = [&](const char* type, std::vector<graph::Value> args, GraphMaker::Shape shape,
                      const support::OpOptions& options = {}) {
    return maker.op(type, std::move(args), std::move(shape), options);
  };
  const auto replaces = [](TensorId old, Phase phase = Phase::kForward) {
    return support::OpOptions{.phase = phase, .role = TensorRole::kOutput, .replaces = old};
  };
  const graph::Value dim = list_value({int_value(0)});
  // Written and never read.
  op("aten.tanh.default", {t(first)}, row, replaces(direction));
  op("aten.mean.dim", {t(x), dim}, row, replaces(average));
  // Read by two ops, and replaced by a third, which needs the mean of the batch.
  const TensorId centred = op("aten.sub.Tensor", {t(x), t(level)}, rows);
  const TensorId product = op("aten.mul.Tensor", {t(centred), t(first)}, rows);
  const TensorId raised = op("aten.add.Tensor", {t(product), t(level)}, rows);
  const TensorId squashed = op("aten.tanh.default", {t(raised)}, rows);
  const TensorId weighed = op("aten.mul.Tensor", {t(squashed), t(second)}, rows);
  const TensorId seen = op("aten.mean.dim", {t(squashed), dim}, row);
  const TensorId kept = op("aten.mul.Scalar", {t(level), float_value(0.9)}, row);
  op("aten.add.Tensor", {t(kept), t(seen)}, row, replaces(level));
  maker.loss(op("aten.sum.default", {t(weighed)}, {}, {.role = TensorRole::kOutput}));

  // Not the gradients of this loss, but sums over the batch, as gradients are.
  const auto gradient = [&](TensorId of, TensorId parameter) {
    return op("aten.sum.dim_IntList", {t(of), dim}, row,
              {.phase = Phase::kBackward, .role = TensorRole::kGradient, .of = parameter});
  };
  const TensorId of_first = gradient(centred, first), of_second = gradient(squashed, second);
  const TensorId both =
      op("aten.add.Tensor", {t(of_first), t(of_second)}, row, {.phase = Phase::kUpdate});
  const TensorId decayed =
      op("aten.mul.Scalar", {t(scale), float_value(0.5)}, row, {.phase = Phase::kUpdate});
  const TensorId next_scale =
      op("aten.add.Tensor", {t(decayed), t(both)}, row, replaces(scale, Phase::kUpdate));
  for (const auto& [parameter, own] : {std::pair(first, of_first), {second, of_second}}) {
    const TensorId scaled =
        op("aten.mul.Tensor", {t(own), t(next_scale)}, row, {.phase = Phase::kUpdate});
    const TensorId change =
        op("aten.mul.Scalar", {t(scaled), float_value(0.1)}, row, {.phase = Phase::kUpdate});
    op("aten.sub.Tensor", {t(parameter), t(change)}, row, replaces(parameter, Phase::kUpdate));
  }
  return std::move(maker).build();
}

TEST(WhatStays, IsRightOnEveryDeviceThatReadsIt) {
  for (const std::size_t devices : {2, 3}) {
    const std::shared_ptr<const cost::Problem> problem =
        decide::toy_problem(remembers(), devices, 11);
    for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
      const std::vector<double> even(devices, 1);
      EXPECT_LE(off_by(problem, weighted(*problem, even, sync)), kTolerance);
      EXPECT_LE(off_by(problem, weighted(*problem, {1, 7}, sync)), kTolerance);
    }
    EXPECT_LE(
        off_by(problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(1)))),
        kTolerance);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(fmt::format("{} devices, mix {}", devices, seed));
      const decide::Strategy mix = random_mix(*problem, seed);
      EXPECT_LE(off_by(problem, mix), kTolerance);
      EXPECT_EQ(compiler::check_bytes(*problem, mix, compiler::compile(*problem, mix, {})),
                std::vector<std::string>());
    }
  }
}

// The next value is written over the old one.
TEST(WhatStays, IsNotReadAfterItsNextValueIsMade) {
  GraphMaker maker("late");
  const TensorId x = maker.input("x", {kB, n(4)});
  const TensorId level = maker.buffer("level", {n(4)});
  maker.op("aten.mul.Scalar", {tensor_value(level), float_value(0.9)}, {n(4)},
           {.role = TensorRole::kOutput, .replaces = level});
  const TensorId late =
      maker.op("aten.sub.Tensor", {tensor_value(x), tensor_value(level)}, {kB, n(4)});
  maker.loss(maker.op("aten.sum.default", {tensor_value(late)}, {}, {.role = TensorRole::kOutput}));
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(std::move(maker).build(), 2, 8);
  try {
    make_test_job(problem, weighted(*problem, {1, 1}, SyncMethod::kAllReduce));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "test: op 'sub' reads the old value of 'level' after op 'mul' has made the next "
                 "one; read it earlier, or read a copy made earlier");
  }
}

// Also what no op reads is kept by a rank, so that it is compared and saved.
TEST(WhatStays, IsComparedWhereNobodyReadsIt) {
  const std::shared_ptr<const cost::Problem> problem = decide::toy_problem(remembers(), 2, 8);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {1, 1}, SyncMethod::kParameterServer));
  for (TensorId id : problem->graph->tensor_ids()) {
    const graph::Tensor& tensor = problem->graph->tensor(id);
    if (tensor.role != TensorRole::kBuffer && tensor.role != TensorRole::kOptimizerState) continue;
    for (const Program& program : test.job.programs) {
      EXPECT_TRUE(program.slot_of[id].valid()) << tensor.name;
    }
  }
  // A rank that leaves one as it was is found.
  TestJob broken = test;
  for (Program& program : broken.job.programs) {
    for (Instruction& instruction : program.instructions) {
      std::erase_if(instruction.body, [&](const BodyStep& step) {
        if (step.kind != BodyStep::Kind::kStore) return false;
        const Slot& slot = program.slots[step.slot];
        return slot.kind == Slot::Kind::kResident &&
               problem->graph->tensor(slot.tensor).name == "direction";
      });
    }
  }
  const Verification found = verify(broken.job, broken.plan, {.steps = 1});
  EXPECT_GT(found.worst_relative(), 1e-3);
  for (const Difference& worst : found.worst) {
    if (worst.relative > kTolerance) {
      EXPECT_EQ(worst.tensor, "direction");
    }
  }
}

}  // namespace
}  // namespace heterog::runtime

// Sharded parameters: devices update rows of their own, and all of them train as one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "decide/micro_batches.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"
#include "runtime/program/faults.h"
#include "runtime/program/kept_rows.h"
#include "runtime/ranks/training_run.h"

namespace heterog::runtime {
namespace {

using compiler::TaskKind;
using decide::SyncMethod;

// Samples 2 : 1 : 3, rows as given.
decide::Strategy by_rows(const cost::Problem& problem, const std::vector<double>& row_weights) {
  decide::Strategy strategy = weighted(problem, {2, 1, 3}, SyncMethod::kSharded);
  for (double weight : row_weights) strategy.row_weights.push_back(weight);
  return strategy;
}

std::shared_ptr<const cost::Problem> toy_of(const std::string& path, std::int64_t batch = 17) {
  return decide::toy_problem(graph::read_graph(path), 3, batch);
}

std::size_t scatters(const compiler::Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count(plan.kind, TaskKind::kReduceScatter));
}

struct ShardCase {
  const char* graph;
  bool scatters = true;
  double tolerance = 1e-10;
};

// Adam, AdamW, SGD with momentum, chains of single operators; tied tables; masters of bfloat16;
// clipping, whose norm wants whole gradients, so that none is scattered.
class Sharded : public testing::TestWithParam<ShardCase> {};

TEST_P(Sharded, TrainsAsOneDevice) {
  const auto problem = toy_of(GetParam().graph);
  for (const std::vector<double>& rows :
       {std::vector<double>{}, std::vector<double>{1, 5, 2}, std::vector<double>{1, 1e6, 1}}) {
    for (Bytes bucket : {Bytes{0}, Bytes{1} << 12, Bytes{1} << 30}) {
      decide::Strategy strategy = by_rows(*problem, rows);
      strategy.bucket_bytes = bucket;
      const TestJob test = make_test_job(problem, strategy);
      EXPECT_EQ(scatters(test.plan) > 0, GetParam().scatters);
      EXPECT_LE(verify(test.job, test.plan, {.steps = 3}).worst_relative(), GetParam().tolerance)
          << "bucket " << bucket << ", " << rows.size() << " weights of rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, Sharded,
                         testing::Values(ShardCase{"models/bert_large24-tiny.json.gz"},
                                         ShardCase{"models/gnmt4-tiny.json.gz"},
                                         ShardCase{"models/vgg19-tiny.json.gz"},
                                         ShardCase{"tests/data/transformer_tied.json.gz", false},
                                         ShardCase{"tests/data/partly_tied.json.gz"},
                                         ShardCase{"tests/data/convolutions_adamw.json.gz"},
                                         ShardCase{"tests/data/channels_last.json.gz", true, 1e-9},
                                         ShardCase{"tests/data/mlp_sgd.json.gz"},
                                         ShardCase{"tests/data/masters_bfloat16.json.gz"},
                                         ShardCase{"tests/data/mlp_clipped.json.gz", false}));

// All gradients of a group share a collective, however far apart they become ready.
TEST(Groups, AreOneCollectiveEach) {
  const auto problem = toy_of("models/vgg19-tiny.json.gz");
  for (const SyncMethod method : {SyncMethod::kAllReduce, SyncMethod::kSharded}) {
    decide::Strategy strategy = weighted(*problem, {2, 1, 3}, method);
    const auto parameters = problem->graph->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      strategy.sync.push_back({.parameter = parameters[i],
                               .method = method,
                               .group = 1 + static_cast<std::uint32_t>(i % 3)});
    }
    const TestJob test = make_test_job(problem, strategy);
    const auto of = [&](TaskKind kind) { return std::ranges::count(test.plan.kind, kind); };
    if (method == SyncMethod::kAllReduce) {
      EXPECT_EQ(of(TaskKind::kAllReduce), 3 + 1);  // and the reported loss
    } else {
      EXPECT_EQ(of(TaskKind::kReduceScatter), 3);
    }
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
}

// Every device keeps its rows of the state, and nothing else of it.
TEST(ShardedState, IsWhatTheRowsTake) {
  const auto problem = toy_of("models/bert_large24-tiny.json.gz");
  const TestJob test = make_test_job(problem, by_rows(*problem, {1, 1, 2}));
  const TestJob whole =
      make_test_job(problem, weighted(*problem, {2, 1, 3}, SyncMethod::kAllReduce));
  std::size_t parts = 0;
  for (TensorId tensor : problem->graph->tensor_ids()) {
    const std::vector<KeptRows> kept = kept_rows(test.job, tensor);
    std::int64_t rows = 0;
    for (const KeptRows& part : kept) {
      EXPECT_EQ(part.begin, rows);
      rows = part.end;
    }
    if (kept.empty()) continue;
    ++parts;
    EXPECT_EQ(problem->graph->tensor(tensor).role, graph::TensorRole::kOptimizerState);
    EXPECT_EQ(rows, problem->graph->shape(tensor)[0].c);
  }
  EXPECT_GT(parts, 40u);
  const auto state = [](const TestJob& of, std::size_t device) {
    return static_cast<double>(of.plan.static_memory[DeviceId(device)].optimizer_state);
  };
  EXPECT_NEAR(state(test, 0) / state(whole, 0), 0.25, 0.01);
  EXPECT_NEAR(state(test, 2) / state(whole, 2), 0.5, 0.01);
  IdVector<DeviceId, WorkerOptions> options(3);
  for (WorkerOptions& one : options) one.count_memory = true;
  TrainingRun run(ranks_in_threads(test.job, test.plan, options), options[DeviceId(0)]);
  const StepReport report = run.step(1);
  for (std::size_t device = 0; device < 3; ++device) {
    EXPECT_EQ(report.memory[device].optimizer_state,
              test.plan.static_memory[DeviceId(device)].optimizer_state);
  }
}

// A checkpoint is whole: training goes on from it under other rows, and under none, bit for bit.
TEST(ShardedState, IsSavedWhole) {
  const auto problem = decide::model_problem("lenet5-tiny", 3, 12);
  const std::string path = testing::TempDir() + "heterog_shards_" + std::to_string(getpid());
  const std::shared_ptr<const cost::Problem> shared(problem.get(), [](const auto*) {});
  const auto job_of = [&](const std::vector<double>& rows, SyncMethod sync) {
    decide::Strategy strategy = weighted(*shared, {1, 1, 1}, sync);
    for (double weight : rows) strategy.row_weights.push_back(weight);
    return make_test_job(shared, strategy);
  };
  const auto run_of = [](const TestJob& test) {
    return TrainingRun(ranks_in_threads(test.job, test.plan, IdVector<DeviceId, WorkerOptions>(3)),
                       {});
  };
  const TestJob first = job_of({1, 4, 2}, SyncMethod::kSharded);
  TrainingRun run = run_of(first);
  run.step(1);
  run.save(path, 1);
  const double third = (run.step(2), run.step(3).loss);
  const TestJob again = job_of({1, 4, 2}, SyncMethod::kSharded);
  TrainingRun resumed = run_of(again);
  EXPECT_EQ(resumed.load(path), 1);
  resumed.step(2);
  EXPECT_EQ(resumed.step(3).loss, third);
  for (const TestJob& other :
       {job_of({3, 1, 1}, SyncMethod::kSharded), job_of({}, SyncMethod::kParameterServer)}) {
    TrainingRun goes_on = run_of(other);
    EXPECT_EQ(goes_on.load(path), 1);
    goes_on.step(2);
    EXPECT_NEAR(goes_on.step(3).loss, third, 1e-5 * third);  // sums of float32 in other orders
  }
  std::filesystem::remove(path);
}

TEST(ShardedFaults, AreFound) {
  const auto problem = toy_of("models/lenet5-tiny.json.gz");
  for (Fault fault : {Fault::kSkipGather, Fault::kOldShard, Fault::kWrongRows}) {
    TestJob test = make_test_job(problem, by_rows(*problem, {}));
    inject(test.job, test.plan, fault);
    EXPECT_GT(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-6)
        << kFaultNames[static_cast<std::size_t>(fault)];
    TestJob whole = make_test_job(problem, weighted(*problem, {1, 1}, SyncMethod::kAllReduce));
    EXPECT_THROW(inject(whole.job, whole.plan, fault), Error);
  }
}

// ---- frozen parameters in rows ----

std::size_t frozen_gathers(const compiler::Plan& plan) {
  std::size_t found = 0;
  for (TaskId task : plan.task_ids()) {
    found += plan.kind[task] == TaskKind::kAllGather &&
             plan.encoding_of(task) == compiler::Encoding::kPart;
  }
  return found;
}

decide::Strategy frozen_in_rows(const cost::Problem& problem, const std::vector<double>& samples,
                                const std::vector<double>& row_weights) {
  decide::Strategy strategy = weighted(problem, samples, SyncMethod::kGathered);
  for (double weight : row_weights) strategy.row_weights.push_back(weight);
  return strategy;
}

// Adapters beside a base that is frozen, as it is and of 4 bits: on two and three devices, of even
// and unequal rows, in one piece and in micro-batches of every pattern, with ops that run again.
TEST(FrozenRows, TrainAsOneDevice) {
  for (const char* path :
       {"models/llama7b_lora-tiny.json.gz", "models/llama70b_qlora-tiny.json.gz"}) {
    const auto graph = graph::read_graph(path);
    for (std::size_t devices : {2, 3}) {
      const std::shared_ptr<const cost::Problem> problem =
          decide::toy_problem(graph::ModelGraph(graph), devices, 11);
      const std::vector<double> samples(devices == 2 ? std::vector<double>{2, 1}
                                                     : std::vector<double>{2, 1, 3});
      for (const std::vector<double>& rows :
           {std::vector<double>{},
            std::vector<double>(devices == 2 ? std::vector<double>{1, 3}
                                             : std::vector<double>{1, 3, 2})}) {
        const decide::Strategy plain = frozen_in_rows(*problem, samples, rows);
        decide::Strategy again = plain;
        for (decide::UnitDecision& unit : again.units) unit.recompute = true;
        decide::Strategy forward_first = decide::accumulate(*problem, plain, 2);
        forward_first.pattern = decide::Pattern::kForwardFirst;
        decide::Strategy strict = decide::accumulate(*problem, again, 3);
        strict.order = decide::OrderPolicy::kRank;
        strict.strict = true;
        for (const decide::Strategy& strategy :
             {plain, again, forward_first, strict, decide::accumulate(*problem, plain, 3)}) {
          const TestJob test = make_test_job(problem, strategy);
          EXPECT_GT(frozen_gathers(test.plan), 10u);
          EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10)
              << path << " on " << devices << ", " << strategy.micro_batches << " micro-batches";
        }
      }
    }
  }
}

// Units wherever they are, by any method.
TEST(FrozenRows, TrainAsOneDeviceInAnyMix) {
  const std::shared_ptr<const cost::Problem> problem = toy_of("models/llama7b_lora-tiny.json.gz");
  std::size_t gathers = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    decide::Strategy strategy = random_mix(*problem, seed);
    for (decide::UnitDecision& unit : strategy.units) {
      if (unit.sync != SyncMethod::kParameterServer) unit.sync = SyncMethod::kGathered;
    }
    const TestJob test = make_test_job(problem, strategy);
    gathers += frozen_gathers(test.plan);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10) << seed;
  }
  EXPECT_GT(gathers, 10u);
}

// A rank keeps its rows of the base alone, as the plan says, and a checkpoint is whole.
TEST(FrozenRows, AreKeptByTheirOwners) {
  const std::shared_ptr<const cost::Problem> problem =
      toy_of("models/llama7b_lora-tiny.json.gz", 12);
  const TestJob test = make_test_job(problem, frozen_in_rows(*problem, {1, 1, 1}, {1, 2, 5}));
  const TestJob whole = make_test_job(problem, by_rows(*problem, {}));
  IdVector<DeviceId, WorkerOptions> options(3);
  for (WorkerOptions& one : options) one.count_memory = true;
  TrainingRun run(ranks_in_threads(test.job, test.plan, options), options[DeviceId(0)]);
  const StepReport report = run.step(1);
  for (std::size_t device = 0; device < 3; ++device) {
    EXPECT_EQ(report.memory[device].parameters,
              test.plan.static_memory[DeviceId(device)].parameters);
    EXPECT_LT(report.memory[device].buffers, whole.plan.static_memory[DeviceId(device)].buffers);
  }
  const std::string path = testing::TempDir() + "heterog_frozen_" + std::to_string(getpid());
  run.save(path, 1);
  const double third = (run.step(2), run.step(3).loss);
  for (const decide::Strategy& other :
       {frozen_in_rows(*problem, {1, 1, 1}, {1, 2, 5}), frozen_in_rows(*problem, {2, 1, 1}, {}),
        weighted(*problem, {1, 1, 1}, SyncMethod::kAllReduce)}) {
    const TestJob next = make_test_job(problem, other);
    TrainingRun resumed(ranks_in_threads(next.job, next.plan, IdVector<DeviceId, WorkerOptions>(3)),
                        {});
    EXPECT_EQ(resumed.load(path), 1);
    resumed.step(2);
    EXPECT_NEAR(resumed.step(3).loss, third, 1e-5 * third);
  }
  std::filesystem::remove(path);
}

TEST(FrozenRows, ThatAreLostAreFound) {
  const auto problem = toy_of("models/llama7b_lora-tiny.json.gz");
  TestJob test = make_test_job(problem, frozen_in_rows(*problem, {2, 1, 3}, {}));
  inject(test.job, test.plan, Fault::kZeroRows);
  EXPECT_GT(verify(test.job, test.plan, {.steps = 1}).worst_relative(), 1e-6);
  TestJob whole = make_test_job(problem, by_rows(*problem, {}));
  EXPECT_THROW(inject(whole.job, whole.plan, Fault::kZeroRows), Error);
}

}  // namespace
}  // namespace heterog::runtime

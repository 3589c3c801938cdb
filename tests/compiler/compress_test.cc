// How long compressed gradients take in a plan, and the memory that they need.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "cost/collective.h"
#include "decide/problems.h"
#include "sim/known_problems.h"

namespace heterog::compiler {
namespace {

using decide::SyncMethod;
using sim::on;

// A layer of 10 × 10 float32 on two machines of which the second is half as fast; machines have
// one device each.
std::unique_ptr<const cost::Problem> one_layer(const std::string& compression) {
  cluster::ClusterBuilder builder("unlike");
  for (double rate : {1e9, 5e8}) {
    cluster::DeviceType type = cluster::test_type(rate == 1e9 ? "fast" : "slow");
    type.memory_bytes = 1 << 20;
    type.memory_bytes_per_second = rate;
    type.launch_seconds = 1e-6;
    builder.add_machine(cluster::test_machine(rate == 1e9 ? "a" : "b", 1, type));
  }
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(sim::backward_graph(1, 10).graph),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("unlike")),
      cost::ConstantModel(1e-6), 8, {.compression = cost::parse_compression(compression, "test")});
}

Plan plan_of(const cost::Problem& problem, SyncMethod sync) {
  return compile(problem, decide::uniform_strategy(problem, on({0, 1}, sync)));
}

TaskId only(const Plan& plan, TaskKind kind) {
  TaskId found;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != kind) continue;
    EXPECT_FALSE(found.valid());
    found = task;
  }
  EXPECT_TRUE(found.valid());
  return found;
}

Bytes scratch_on(const Plan& plan, TaskId task, DeviceId device) {
  Bytes bytes = 0;
  for (BufferId buffer : plan.allocates[task]) {
    const Plan::Buffer& one = plan.buffers[buffer];
    if (one.is_scratch && one.device == device) bytes += one.bytes;
  }
  return bytes;
}

// By hand: 100 elements at 2 ns a byte on the slower device. fp16: 12 B an element, two kernels;
// with feedback 30 more, three kernels more. PowerSGD of rank 2: 10 · 100 + 3 · 2 · 20 + 10 · 2 ·
// 12 elements of 4 B, 26 kernels; its all-reduces have 80 B each.
TEST(Compressed, AllReducesByHand) {
  struct Case {
    const char* text;
    std::vector<Bytes> sums;
    Nanoseconds work;
    Bytes state;
  };
  for (const Case& one : {Case{"none", {400}, 0, 0}, Case{"fp16", {200}, 2000 + 2400, 0},
                          Case{"bf16,feedback", {200}, 5000 + 8400, 400},
                          Case{"powersgd:rank=2", {80, 80}, 26000 + 8 * 1360, 480}}) {
    SCOPED_TRACE(one.text);
    const auto problem = one_layer(one.text);
    const Plan plan = plan_of(*problem, SyncMethod::kAllReduce);
    const TaskId task = only(plan, TaskKind::kAllReduce);
    Nanoseconds duration = one.work;
    Bytes moved = 0;
    for (Bytes bytes : one.sums) {
      const std::vector<DeviceId> both = {DeviceId(0), DeviceId(1)};
      duration += cost::all_reduce_cost(*problem->cluster, both, bytes).duration;
      moved += bytes;
    }
    EXPECT_EQ(plan.duration[task], duration);
    EXPECT_EQ(plan.moved_bytes[task], moved);
    const auto plain = one_layer("none");
    const Plan uncompressed = plan_of(*plain, SyncMethod::kAllReduce);
    for (DeviceId device : problem->cluster->device_ids()) {
      EXPECT_EQ(scratch_on(plan, task, device), one.work > 0 ? moved : 0);
      EXPECT_EQ(plan.static_memory[device].optimizer_state,
                uncompressed.static_memory[device].optimizer_state + one.state);
    }
  }
}

// A push is cast at one end and cast back at the other, the slower of which counts; what is pulled
// is as it was.
TEST(Compressed, PushesByHand) {
  const auto plain = one_layer("none"), half = one_layer("fp16,feedback");
  const Plan before = plan_of(*plain, SyncMethod::kParameterServer);
  const Plan after = plan_of(*half, SyncMethod::kParameterServer);
  const TaskId push = only(after, TaskKind::kPush);
  EXPECT_EQ(after.moved_bytes[push], 200);
  EXPECT_EQ(after.moved_bytes[only(after, TaskKind::kPull)], 400);
  const cluster::Route& route = half->cluster->route(after.peer[push], after.device[push]);
  EXPECT_EQ(after.duration[push],
            cost::transfer_duration(*half->cluster, route, 200, cost::TransferUse::kServer) + 5000 +
                8400);
  EXPECT_EQ(after.duration[only(after, TaskKind::kPull)],
            before.duration[only(before, TaskKind::kPull)]);
  // It arrives whole; the sender alone keeps what it lost.
  for (DeviceId device : half->cluster->device_ids()) {
    EXPECT_EQ(scratch_on(after, push, device), 200);
    const Bytes lost = device == after.peer[push] ? 400 : 0;
    EXPECT_EQ(after.static_memory[device].optimizer_state,
              before.static_memory[device].optimizer_state + lost);
  }
}

// They travel as rows, as they would without compression.
TEST(Compressed, RowsOfLookUpsAreNot) {
  const auto problem = decide::with_compression(*decide::model_problem("ncf-tiny", 3, 12), "fp16");
  const auto strategy =
      decide::uniform_strategy(*problem, decide::even_decision(*problem, SyncMethod::kAllReduce));
  const Plan plan = compile(*problem, strategy);
  std::size_t rows = 0, compressed = 0;
  for (TaskId task : plan.task_ids()) {
    if (!plan.payload[task].valid()) continue;
    const bool is_rows = plan.encoding_of(task) == Encoding::kRows;
    rows += is_rows ? 1 : 0;
    compressed += plan.is_compressed(task) ? 1 : 0;
    EXPECT_FALSE(is_rows && plan.is_compressed(task));
  }
  EXPECT_GT(rows, 0u);
  EXPECT_GT(compressed, 0u);
}

}  // namespace
}  // namespace heterog::compiler

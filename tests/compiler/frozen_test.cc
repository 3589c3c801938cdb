// Frozen parameters that lie in rows: what is gathered, when, and how much is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/check/check_bytes.h"
#include "compiler/check/verify_plan.h"
#include "compiler/compile.h"
#include "compiler/rescale.h"
#include "decide/frozen.h"
#include "decide/micro_batches.h"
#include "decide/problems.h"
#include "decide/random_instances.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

using decide::Strategy;
using decide::SyncMethod;

constexpr const char* kLora = "models/llama7b_lora-tiny.json.gz";

Strategy gathered(const cost::Problem& problem, const std::vector<double>& weights) {
  decide::UnitDecision decision{.replicas = {}, .sync = SyncMethod::kGathered};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    decision.replicas.push_back({DeviceId(i), weights[i]});
  }
  return decide::uniform_strategy(problem, decision);
}

bool gathers_frozen(const Plan& plan, TaskId task) {
  return plan.kind[task] == TaskKind::kAllGather && plan.encoding_of(task) == Encoding::kPart;
}

std::vector<TaskId> frozen_gathers(const Plan& plan) {
  std::vector<TaskId> found;
  for (TaskId task : plan.task_ids()) {
    if (gathers_frozen(plan, task)) found.push_back(task);
  }
  return found;
}

Bytes frozen_bytes(const cost::Problem& problem) {
  Bytes bytes = 0;
  for (TensorId parameter : decide::frozen_tensors(problem)) {
    bytes += problem.graph->bytes(parameter, 1);
  }
  return bytes;
}

// The most that gathers hold on a device at any moment of the simulated step.
Bytes most_held(const Plan& plan, const sim::SimResult& result, DeviceId device) {
  std::vector<std::pair<Nanoseconds, Bytes>> changes;
  IdVector<BufferId, Nanoseconds> until(plan.buffers.size(), 0);
  for (TaskId task : plan.task_ids()) {
    for (BufferId buffer : plan.reads[task])
      until[buffer] = std::max(until[buffer], result.end[task]);
  }
  for (TaskId task : frozen_gathers(plan)) {
    for (BufferId buffer : plan.allocates[task]) {
      if (plan.buffers[buffer].device != device || plan.readers[buffer] == 0) continue;
      changes.emplace_back(result.start[task], plan.buffers[buffer].bytes);
      changes.emplace_back(until[buffer], -plan.buffers[buffer].bytes);
    }
  }
  std::ranges::sort(changes);  // at one moment what is given back comes first
  Bytes held = 0, most = 0;
  for (const auto& [at, bytes] : changes) most = std::max(most, held += bytes);
  return most;
}

// Each device keeps its share of the base and nothing else of it; what is trained stays whole. The
// exporter writes frozen weights as buffers.
TEST(FrozenRows, AreAllThatStays) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 3, 12);
  Strategy strategy = gathered(*problem, {2, 1, 3});
  const Plan whole = compile(
      *problem, decide::uniform_strategy(*problem, {.replicas = strategy.units.raw()[0].replicas,
                                                    .sync = SyncMethod::kSharded}));
  for (const std::vector<double>& rows :
       {std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 5}}) {
    strategy.row_weights.clear();
    double all = 0;
    for (double weight : rows) {
      strategy.row_weights.push_back(weight);
      all += weight;
    }
    const Plan plan = compile(*problem, strategy);
    verify_plan(plan);
    const auto frozen = static_cast<double>(frozen_bytes(*problem));
    for (std::size_t i = 0; i < 3; ++i) {
      const DeviceId device(i);
      const StaticMemory &here = plan.static_memory[device],
                         &of_whole = whole.static_memory[device];
      const auto saved = static_cast<double>(of_whole.buffers - here.buffers);
      EXPECT_NEAR(1 - saved / frozen, rows[i] / all, 0.05) << i;
      EXPECT_EQ(here.parameters, of_whole.parameters);
    }
  }
}

// Each is gathered once for the forward pass and, if that reads it, once for the backward pass: of
// every micro-batch.
TEST(FrozenRows, AreGatheredOncePerPass) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 2, 12);
  std::map<TensorId, std::set<graph::Phase>> passes;
  for (TensorId parameter : decide::frozen_tensors(*problem)) {
    for (OpId op : problem->folded->ops) {
      for (const graph::Read& read : problem->folded->reads[op]) {
        if (read.base == parameter) passes[parameter].insert(problem->graph->op(op).phase);
      }
    }
  }
  for (std::int64_t micro_batches : {1, 3}) {
    Strategy strategy = gathered(*problem, {1, 2});
    strategy.micro_batches = micro_batches;
    const Plan plan = compile(*problem, strategy);
    std::map<TensorId, std::size_t> times;
    for (TaskId task : frozen_gathers(plan)) {
      for (const Carried& one : plan.carried_by(task)) ++times[one.tensor];
    }
    ASSERT_GT(times.size(), 10u);
    for (const auto& [parameter, count] : times) {
      if (problem->graph->shape(parameter).size() < 2) continue;  // some run once a device
      EXPECT_EQ(count, passes.at(parameter).size() * static_cast<std::size_t>(micro_batches));
    }
  }
}

// Whatever the order of dispatch and the number of micro-batches, two buckets are held at a time,
// each at most a sixteenth of the base, a parameter more.
TEST(FrozenRows, AreHeldTwoAtATime) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 2, 12);
  Bytes largest = 0;
  for (TensorId parameter : decide::frozen_tensors(*problem)) {
    largest = std::max(largest, problem->graph->bytes(parameter, 1));
  }
  const Bytes all = frozen_bytes(*problem);
  const Bytes bound = 2 * (all / 16 + largest);
  ASSERT_LT(bound, all);
  for (std::int64_t micro_batches : {1, 4}) {
    for (decide::OrderPolicy order : {decide::OrderPolicy::kRank, decide::OrderPolicy::kFifo,
                                      decide::OrderPolicy::kRankQueued}) {
      Strategy strategy = gathered(*problem, {1, 1});
      strategy = decide::accumulate(*problem, strategy, micro_batches);
      if (micro_batches == 1) strategy.order = order;
      const Plan plan = compile(*problem, strategy);
      verify_plan(plan);
      const sim::SimResult result = sim::simulate(plan, decide::dispatch_order(strategy));
      for (DeviceId device : problem->cluster->device_ids()) {
        EXPECT_LE(most_held(plan, result, device), bound) << micro_batches;
      }
    }
  }
}

// What cannot lie in rows stays whole: of fewer rows than devices, or read on other devices than
// those that hold it. How often each reads it does not matter.
TEST(FrozenRows, AreOfThoseThatAllNeed) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 3, 12);
  Strategy strategy = gathered(*problem, {1, 1, 1});
  strategy.row_weights =
      IdVector<DeviceId, double>(std::vector<double>{1, 1, 1e-6});  // no rows for the last one
  EXPECT_TRUE(frozen_gathers(compile(*problem, strategy)).empty());
  strategy.row_weights.clear();
  const Strategy all = strategy;
  for (std::size_t unit = 0; unit < strategy.units.size(); unit += 2) {
    strategy.units[UnitId(unit)] = decide::single_decision(DeviceId(1));
  }
  const Plan apart = compile(*problem, strategy);
  EXPECT_LT(decide::lay_out(*problem, strategy).gathered.size(),
            decide::lay_out(*problem, all).gathered.size());
  EXPECT_TRUE(check_bytes(*problem, strategy, apart).empty());
  strategy = all;
  for (decide::UnitDecision& unit : strategy.units) unit.in_turn = true;
  for (std::int64_t micro_batches : {3, 4}) {  // the first device has two of four
    strategy.micro_batches = micro_batches;
    const Plan in_turn = compile(*problem, strategy);
    verify_plan(in_turn);
    EXPECT_FALSE(frozen_gathers(in_turn).empty());
    EXPECT_TRUE(check_bytes(*problem, strategy, in_turn).empty());
  }
}

// A method of one parameter alone.
TEST(FrozenRows, MayBeOfOneParameter) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 2, 8);
  Strategy strategy = gathered(*problem, {1, 1});
  for (decide::UnitDecision& unit : strategy.units) unit.sync = SyncMethod::kAllReduce;
  const TensorId one = decide::frozen_tensors(*problem).front();
  strategy.sync = {{.parameter = one, .method = SyncMethod::kGathered}};
  const Plan plan = compile(*problem, strategy);
  for (TaskId task : frozen_gathers(plan)) {
    ASSERT_EQ(plan.carried_by(task).size(), 1u);
    EXPECT_EQ(plan.carried_by(task)[0].tensor, one);
  }
  EXPECT_FALSE(frozen_gathers(plan).empty());
  EXPECT_TRUE(check_bytes(*problem, strategy, plan).empty());
}

// Rows have no samples: a step of other samples gathers the same.
TEST(FrozenRows, StayAtOtherSamples) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 2, 12);
  Strategy strategy = gathered(*problem, {2, 1});
  strategy.micro_batches = 2;
  const Plan plan = compile(*problem, strategy);
  const Plan other = rescaled(*at_batch(*problem, 7), plan);
  verify_plan(other, EmptySlices::kAllowed);
  const std::vector<TaskId> gathers = frozen_gathers(plan);
  ASSERT_EQ(frozen_gathers(other), gathers);
  for (TaskId task : gathers) {
    EXPECT_EQ(other.moved_bytes[task], plan.moved_bytes[task]);
    for (BufferId buffer : plan.allocates[task]) {
      EXPECT_EQ(other.buffers[buffer].bytes, plan.buffers[buffer].bytes);
    }
  }
}

// Random units, micro-batches, patterns, weights of rows and recomputation: plans that hold, and
// move what is counted apart.
TEST(FrozenRows, MoveWhatTheirFormulasSay) {
  int gathers = 0, several = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const char* path = seed % 3 == 0 ? "models/llama70b_qlora-tiny.json.gz" : kLora;
    const auto problem = decide::toy_problem(graph::read_graph(path), 2 + seed % 3, 13);
    Rng rng(seed);
    Strategy strategy = seed % 2 ? decide::random_instances(*problem, seed)
                                 : gathered(*problem, std::vector<double>(2 + seed % 3, 1.0));
    for (decide::UnitDecision& unit : strategy.units) {
      if (seed % 2 && rng.below(4) > 0) unit.sync = SyncMethod::kGathered;
      if (!unit.in_turn) unit.recompute = rng.below(6) == 0;
    }
    if (seed % 2 == 0) strategy.micro_batches = 1 + static_cast<std::int64_t>(rng.below(3));
    for (DeviceId device : problem->cluster->device_ids()) {
      if (seed % 5 < 2) strategy.row_weights.push_back(1.0 + 1.0 * (device.value() % 3));
    }
    const Plan plan = compile(*problem, strategy);
    verify_plan(plan);
    const auto wrong = check_bytes(*problem, strategy, plan);
    EXPECT_TRUE(wrong.empty()) << seed << ": " << wrong[0];
    for (TaskId task : frozen_gathers(plan)) {
      ++gathers;
      several += plan.carried_by(task).size() > 1;
    }
  }
  EXPECT_GT(gathers, 1000);
  EXPECT_GT(several, 100);
}

// Of three devices with a third of the rows each, two thirds of the base cross each hop for a pass;
// what pads the parts is less than a row of each parameter.
TEST(FrozenRows, CrossEachHopAsInARing) {
  const auto problem = decide::toy_problem(graph::read_graph(kLora), 3, 12);
  const Strategy strategy = gathered(*problem, {1, 1, 1});
  const Plan plan = compile(*problem, strategy);
  double gathered_bytes = 0, rows = 0;
  IdVector<LinkId, double> crossed(problem->cluster->link_count(), 0.0);
  for (TaskId task : frozen_gathers(plan)) {
    gathered_bytes += static_cast<double>(plan.moved_bytes[task]);
    for (const Carried& one : plan.carried_by(task)) {
      rows += static_cast<double>(problem->graph->bytes(one.tensor, 1) /
                                  problem->graph->shape(one.tensor)[0].c);
    }
    for (const Hold& hold : plan.holds[task]) {
      for (LinkId link : id_range<LinkId>(problem->cluster->link_count())) {
        if (hold.resource == plan.link(link)) crossed[link] += static_cast<double>(hold.bytes);
      }
    }
  }
  ASSERT_GT(gathered_bytes, 0);
  double most = 0;
  for (double bytes : crossed) most = std::max(most, bytes);
  EXPECT_GE(most, gathered_bytes * 2 / 3 * 0.99);
  EXPECT_LE(most, (gathered_bytes * 2 / 3 + 2 * rows) * 1.01);
}

}  // namespace
}  // namespace heterog::compiler

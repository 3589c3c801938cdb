// Stages as strategies: strict turns are kept, and recomputation saves the memory that it is for.
#include "search/pipeline/stage_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "compiler/compile.h"
#include "decide/micro_batches.h"
#include "decide/pass_turns.h"
#include "search/problems.h"
#include "sim/check_timeline.h"
#include "sim/simulator.h"

namespace heterog::search {
namespace {

using compiler::Plan;
using compiler::TaskKind;
using decide::Pattern;
using decide::Strategy;

// Consecutive layers on consecutive devices, cut at random.
std::vector<Stage> random_stages(std::size_t layers, std::size_t devices, Rng& rng) {
  const std::size_t count = 1 + rng.below(std::min(layers, devices));
  const auto cut = [&](std::size_t into) {
    std::vector<std::size_t> places(into - 1);
    std::iota(places.begin(), places.end(), 1);
    for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[rng.below(i)]);
    places.resize(count - 1);
    std::ranges::sort(places);
    places.insert(places.begin(), 0);
    places.push_back(into);
    return places;
  };
  const auto of_layers = cut(layers), of_devices = cut(devices);
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < count; ++s) {
    Stage& stage = stages.emplace_back(Stage{of_layers[s], of_layers[s + 1], {}});
    for (std::size_t d = of_devices[s]; d < of_devices[s + 1]; ++d) {
      stage.devices.push_back(DeviceId(d));
    }
  }
  return stages;
}

// The tasks of each turn of each device, by the stages that were cut: of the forward or backward
// ops of all its layers, on the samples of one micro-batch.
std::vector<std::vector<std::vector<TaskId>>> tasks_of_turns(const cost::Problem& problem,
                                                             const Pipelines& pipelines,
                                                             const Staging& how,
                                                             const Strategy& strategy,
                                                             const Plan& plan) {
  const auto between = decide::ops_between_turns(problem, strategy.unit_of_op);
  const decide::Layout layout = decide::lay_out(problem, strategy);
  const auto once = [&](OpId op) { return layout.merged[layout.of_op[op]] == layout.of_op[op]; };
  const auto begins = decide::micro_batch_boundaries(problem.batch, how.micro_batches);
  std::vector<std::vector<std::vector<TaskId>>> turns(plan.device_count);
  for (const std::vector<Stage>& stages : pipelines) {
    const auto of_stages = decide::stage_turns(how.pattern, stages.size(), how.micro_batches);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (DeviceId device : stages[s].devices) {
        auto& of_device = turns[device.value()];
        of_device.resize(2 * static_cast<std::size_t>(how.micro_batches));
        std::map<std::pair<OpId, std::int64_t>, int> seen;
        for (TaskId task : plan.task_ids()) {
          if (plan.kind[task] != TaskKind::kCompute || plan.device[task] != device) continue;
          const OpId op = plan.op[task];
          const graph::Phase phase = problem.graph->op(op).phase;
          if (phase == graph::Phase::kUpdate || between[op] || once(op)) continue;
          if (seen[{op, plan.begin[task]}]++ > 0) continue;  // runs again
          const auto m = static_cast<std::size_t>(decide::micro_batch_of(begins, plan.begin[task]));
          const auto turn =
              phase == graph::Phase::kForward ? of_stages[s].forward[m] : of_stages[s].backward[m];
          of_device[static_cast<std::size_t>(turn)].push_back(task);
        }
      }
    }
  }
  return turns;
}

constexpr std::array kPatterns = {Pattern::kForwardFirst, Pattern::kOneForwardOneBackward,
                                  Pattern::kListed};

class StrictTurns : public testing::TestWithParam<const char*> {};

TEST_P(StrictTurns, AreTakenOneAfterTheOther) {
  const auto problem = load_test_problem(GetParam(), "heterog-4gpu", 17);
  const Chain chain = make_chain(*problem, 12);
  ASSERT_TRUE(in_line(*problem, chain));
  Rng rng(3);
  sim::Simulator simulator;
  for (int i = 0; i < 18; ++i) {
    Staging how{.micro_batches = std::array{2, 3, 5}[rng.below(3)],
                .pattern = kPatterns[static_cast<std::size_t>(i % 3)],
                .strict = true,
                .recompute = rng.below(2) == 0,
                .sharing = rng.below(3) == 0 ? Sharing::kInTurn : Sharing::kTogether};
    SCOPED_TRACE(testing::Message() << i << ", " << how.micro_batches << " micro-batches");
    LayerTimes times(*problem, chain);
    const StageCosts costs(times, how.micro_batches, false);
    // Of four devices, one pipeline, or two side by side.
    Pipelines pipelines = {random_stages(chain.layers.size(), 4, rng)};
    if (rng.below(3) == 0) {
      pipelines = {random_stages(chain.layers.size(), 2, rng),
                   random_stages(chain.layers.size(), 2, rng)};
      for (Stage& stage : pipelines[1]) {
        for (DeviceId& device : stage.devices) device = DeviceId(device.value() + 2);
      }
    }
    const Strategy strategy = stage_strategy(*problem, chain, costs, pipelines, how);
    const Plan plan = compiler::compile(*problem, strategy, {});
    const sim::SimResult& result = simulator.simulate_timeline(plan, strategy.order);
    EXPECT_THAT(sim::check_timeline(plan, result, strategy.order), testing::IsEmpty());
    for (const auto& turns : tasks_of_turns(*problem, pipelines, how, strategy, plan)) {
      Nanoseconds before = 0;
      for (const std::vector<TaskId>& tasks : turns) {
        Nanoseconds end = 0;
        for (TaskId task : tasks) {
          EXPECT_GE(result.start[task], before);
          end = std::max(end, result.end[task]);
        }
        before = std::max(before, end);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StrictTurns,
                         testing::Values("bert_large24-tiny", "gnmt4-tiny", "transformer6-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// As many samples as by speed, in whole micro-batches of two.
TEST(StageStrategy, DevicesTakeMicroBatchesInTurn) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  const Chain chain = make_chain(*problem, 8);
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 8, false);
  const Pipelines pipelines = {{{0, chain.layers.size(), {DeviceId(0), DeviceId(2)}}}};
  const Strategy strategy = stage_strategy(*problem, chain, costs, pipelines,
                                           {.micro_batches = 8, .sharing = Sharing::kInTurn});
  const auto slices = decide::slices_of(strategy, strategy.units[UnitId(0)], 16);
  ASSERT_EQ(slices.size(), 8u);  // one device each
  double first = 0;
  for (const decide::Slice& slice : slices) {
    EXPECT_EQ(slice.size(), 2);
    if (slice.device == DeviceId(0)) first += 2;
  }
  const double speed = costs.speed(0, chain.layers.size(), DeviceId(0), 2);
  const double share = speed / (speed + costs.speed(0, chain.layers.size(), DeviceId(2), 2));
  EXPECT_NEAR(first, 16 * share, 2);
}

// The stages that devices are found to be are those that were cut.
TEST(StageStrategy, StagesAreFoundAgain) {
  Rng rng(11);
  for (const char* model : {"bert_large24-tiny", "gnmt4-tiny", "transformer6-tiny", "vgg19-tiny"}) {
    const auto problem = load_test_problem(model, "heterog-4gpu", 16);
    const Chain chain = make_chain(*problem, 12);
    LayerTimes times(*problem, chain);
    const StageCosts costs(times, 4, false);
    for (int i = 0; i < 10; ++i) {
      const Pipelines pipelines = {random_stages(chain.layers.size(), 4, rng)};
      const Strategy strategy =
          stage_strategy(*problem, chain, costs, pipelines, {.micro_batches = 4});
      const auto found =
          decide::stages_of_devices(*problem, strategy, decide::lay_out(*problem, strategy));
      for (std::size_t s = 0; s < pipelines[0].size(); ++s) {
        for (DeviceId device : pipelines[0][s].devices) {
          EXPECT_EQ(found[device].stage, s) << model;
          EXPECT_EQ(found[device].stages, pipelines[0].size()) << model;
        }
      }
    }
  }
}

// The table of words, which the output layer reads too, stands with it: its layer is where the last
// one is, and nothing else moves. A model that ties nothing stays as it is.
TEST(StageStrategy, TiesLayersThatReadOneParameter) {
  for (const char* model : {"bert_large24-tiny", "vgg19-tiny"}) {
    const auto problem = load_test_problem(model, "heterog-4gpu", 16);
    const Chain chain = make_chain(*problem, 12);
    LayerTimes times(*problem, chain);
    const StageCosts costs(times, 8, false);
    const std::size_t layers = chain.layers.size();
    const Pipelines pipelines = {
        {{0, layers / 2, {DeviceId(0)}}, {layers / 2, layers, {DeviceId(1)}}}};
    const auto units = [&](bool tied) {
      return stage_strategy(*problem, chain, costs, pipelines,
                            {.micro_batches = 4, .tied_together = tied})
          .units;
    };
    const auto apart = units(false), together = units(true);
    const bool ties = ties_layers(*problem, chain);
    EXPECT_EQ(ties, std::string(model) == "bert_large24-tiny") << model;
    ASSERT_EQ(apart.size(), together.size());
    std::vector<std::size_t> moved;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      if (!(apart[UnitId(i)] == together[UnitId(i)])) moved.push_back(i);
    }
    EXPECT_EQ(moved, ties ? std::vector<std::size_t>{0} : std::vector<std::size_t>{}) << model;
    if (!ties) continue;
    EXPECT_EQ(together[UnitId(0)].replicas, together.raw().back().replicas);
  }
}

// GPipe keeps what all micro-batches save; with recomputation, what they read of the stage before.
TEST(StageStrategy, RecomputationSavesMemoryAndCostsTime) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 16);
  const Chain chain = make_chain(*problem, 24);
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 8, false);
  const std::size_t layers = chain.layers.size();
  const Pipelines pipelines = {
      {{0, layers / 2, {DeviceId(0)}}, {layers / 2, layers, {DeviceId(1)}}}};
  sim::Simulator simulator;
  std::array<Nanoseconds, 2> step{};
  std::array<Bytes, 2> dynamic{};
  for (std::size_t again : {0, 1}) {
    const Strategy strategy = stage_strategy(*problem, chain, costs, pipelines,
                                             {.micro_batches = 8,
                                              .pattern = Pattern::kForwardFirst,
                                              .strict = true,
                                              .recompute = again == 1});
    const Plan plan = compiler::compile(*problem, strategy, {});
    const sim::SimResult& result = simulator.simulate_timeline(plan, strategy.order);
    EXPECT_THAT(sim::check_timeline(plan, result, strategy.order), testing::IsEmpty());
    step[again] = result.step;
    const DeviceId first(0);
    dynamic[again] = result.peak_bytes[first] - plan.static_memory[first].total();
  }
  EXPECT_LT(dynamic[1], dynamic[0] / 2);
  EXPECT_GT(step[1], step[0]);
  EXPECT_LT(step[1], step[0] * 3 / 2);
}

// The table of words is the output layer too: its copy in half precision, which both ends read,
// travels from one to the other, or both make it.
TEST(StageStrategy, CopiesOfWeightsAreMadeWhereTheyAreRead) {
  const auto problem = load_test_problem("../tests/data/masters_bfloat16", "fastt-4gpu", 8);
  const Chain chain = make_chain(*problem, 6);
  ASSERT_TRUE(shares_copies(*problem, chain));
  EXPECT_FALSE(shares_copies(*problem, recomputed(make_chain(*problem, 1))));
  const graph::ParameterOp* words = nullptr;  // the one that far layers read
  for (const graph::ParameterOp& made : problem->folded->parameter_ops) {
    for (OpId reader : made.readers) {
      if (chain.layer_of[reader] + 1 == chain.layers.size() && chain.layer_of[made.op] == 0) {
        words = &made;
      }
    }
  }
  ASSERT_NE(words, nullptr);
  LayerTimes times(*problem, chain);
  const StageCosts costs(times, 2, false);
  const Pipelines pipelines = {{{0, 3, {DeviceId(0)}}, {3, chain.layers.size(), {DeviceId(1)}}}};
  for (const bool strict : {false, true}) {
    for (const Copies copies : {Copies::kWhereMade, Copies::kWhereRead}) {
      const Strategy strategy =
          stage_strategy(*problem, chain, costs, pipelines,
                         {.micro_batches = 2, .strict = strict, .copies = copies});
      const Plan plan = compiler::compile(*problem, strategy);
      std::vector<DeviceId> made_on;
      int moved = 0;
      for (TaskId task : plan.task_ids()) {
        if (plan.kind[task] == TaskKind::kCompute && plan.op[task] == words->op) {
          made_on.push_back(plan.device[task]);
        }
        moved += plan.kind[task] == TaskKind::kTransfer &&
                 problem->graph->tensor(plan.tensor[task]).producer == words->op;
      }
      EXPECT_EQ(made_on.size(), copies == Copies::kWhereRead ? 2u : 1u);
      EXPECT_EQ(moved, copies == Copies::kWhereRead ? 0 : 1);
    }
  }
}

// Running statistics are those of all micro-batches, which a stage would have to finish first.
TEST(StageStrategy, BatchNormalisationHasNoTurns) {
  const auto problem = load_test_problem("resnet50-tiny", "heterog-4gpu", 16);
  EXPECT_FALSE(in_line(*problem, make_chain(*problem, 8)));
}

}  // namespace
}  // namespace heterog::search

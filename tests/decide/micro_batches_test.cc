// Strategies in micro-batches: who has which samples, and in which order they run.
#include "decide/micro_batches.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "compiler/compile.h"
#include "decide/pass_turns.h"
#include "decide/problems.h"
#include "decide/random_instances.h"
#include "sim/simulator.h"

namespace heterog::decide {
namespace {

Strategy shared_out(const cost::Problem& problem, const std::vector<double>& weights) {
  UnitDecision decision;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    decision.replicas.push_back({DeviceId(i), weights[i]});
  }
  return uniform_strategy(problem, decision);
}

std::map<DeviceId, std::int64_t> samples_by_device(const Strategy& strategy, UnitId unit,
                                                   std::int64_t batch) {
  std::map<DeviceId, std::int64_t> samples;
  for (const Slice& slice : slices_of(strategy, strategy.units[unit], batch)) {
    samples[slice.device] += slice.size();
  }
  return samples;
}

TEST(Accumulate, OfOneIsTheStrategyItself) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 8);
  const Strategy strategy = shared_out(*problem, {3, 1});
  EXPECT_EQ(accumulate(*problem, strategy, 1), strategy);
}

TEST(Accumulate, KeepsTheSamplesOfEveryDevice) {
  for (std::int64_t batch : {8, 13, 16}) {
    const auto problem = model_problem("gnmt4-tiny", 3, batch);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Strategy strategy = random_instances(*problem, seed, 1);
      for (std::int64_t k : {std::int64_t{2}, std::int64_t{3}, batch}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << k << " of " << batch);
        const Strategy made = accumulate(*problem, strategy, k);
        for (UnitId unit : id_range<UnitId>(made.units.size())) {
          // Whole micro-batches come to about as many.
          if (!made.units[unit].in_turn) {
            EXPECT_EQ(samples_by_device(made, unit, batch),
                      samples_by_device(strategy, unit, batch));
          }
          // Every micro-batch begins where a slice does.
          std::map<std::int64_t, int> begins;
          for (const Slice& slice : slices_of(made, made.units[unit], batch)) ++begins[slice.begin];
          for (std::int64_t i = 0; i < k; ++i) EXPECT_EQ(begins.count(batch * i / k), 1u);
        }
        compiler::compile(*problem, made, {});  // checks the strategy
      }
    }
  }
}

TEST(Accumulate, SharesOutEveryMicroBatch) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  const Strategy made = accumulate(*problem, shared_out(*problem, {2, 1}), 2);
  const std::vector<Slice> slices = slices_of(made, made.units[UnitId(0)], 12);
  const DeviceId a(0), b(1);
  EXPECT_EQ(slices, (std::vector<Slice>{{a, 0, 4}, {b, 4, 6}, {a, 6, 10}, {b, 10, 12}}));
}

TEST(MicroBatches, InTurnAreOfOneDeviceEach) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  Strategy made = accumulate(*problem, shared_out(*problem, {2, 1}), 3);
  made.units[UnitId(0)].in_turn = true;
  const DeviceId a(0), b(1);
  EXPECT_EQ(slices_of(made, made.units[UnitId(0)], 12),
            (std::vector<Slice>{{a, 0, 4}, {a, 4, 8}, {b, 8, 12}}));
}

// Two pipelines of two devices: the first has 8 of 12 samples, 4 of each micro-batch of 6, whoever
// of its devices has them.
TEST(MicroBatches, OfPipelinesSideBySideAreDealtToPipelinesFirst) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 4, 12);
  Strategy made = accumulate(*problem, shared_out(*problem, {5, 3, 3, 1}), 2);
  made.pipeline_of = IdVector<DeviceId, std::uint32_t>(std::vector<std::uint32_t>{0, 0, 1, 1});
  const DeviceId a(0), b(1), c(2), d(3);
  EXPECT_EQ(slices_of(made, made.units[UnitId(0)], 12), (std::vector<Slice>{{a, 0, 3},
                                                                            {b, 3, 4},
                                                                            {c, 4, 6},  //
                                                                            {a, 6, 8},
                                                                            {b, 8, 10},
                                                                            {c, 10, 11},
                                                                            {d, 11, 12}}));
}

TEST(Accumulate, CutsMicroBatchesAnew) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 12);
  Strategy made = accumulate(*problem, shared_out(*problem, {2, 1}), 2);
  made.pattern = Pattern::kForwardFirst;
  const Strategy again = accumulate(*problem, made, 3);
  EXPECT_EQ(again.micro_batches, 6);
  EXPECT_EQ(again.pattern, Pattern::kForwardFirst);
  try {
    accumulate(*problem, made, 7);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "7 micro-batches of each of 2 micro-batches of a batch of 12; expected 1 to 6");
  }
}

// Whatever schedule the strategy had.
TEST(InPipeline, TakesTurnsInOneScheduleOfItsOwn) {
  const auto problem = model_problem("gnmt4-tiny", 3, 16);
  const Strategy whole = shared_out(*problem, {3, 1, 2});
  const Strategy made = in_pipeline(*problem, whole, 4);
  EXPECT_EQ(made.units, whole.units);
  EXPECT_EQ(made.micro_batches, 4);
  EXPECT_EQ(made.pattern, Pattern::kZeroBubble);
  EXPECT_EQ(made.order, OrderPolicy::kPriority);
  EXPECT_EQ(made.order_rounds, 1);
  Strategy strict = accumulate(*problem, whole, 2);
  strict.pattern = Pattern::kOneForwardOneBackward;
  strict.strict = true;
  strict.order = OrderPolicy::kRank;
  EXPECT_EQ(in_pipeline(*problem, strict, 4), made);
  EXPECT_EQ(in_pipeline(*problem, made, 4), made);
  Strategy queued = whole;
  queued.order = OrderPolicy::kRankQueued;
  EXPECT_EQ(in_pipeline(*problem, made, 1), queued);
  EXPECT_EQ(in_pipeline(*problem, whole, 1), whole);
  EXPECT_THROW(in_pipeline(*problem, made, 17), Error);
  EXPECT_EQ(possible_parts(*problem, whole), (std::vector<std::int64_t>{2, 3, 4, 6, 8, 12, 16}));
}

TEST(Accumulate, RefusesMoreMicroBatchesThanSamples) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 4);
  for (std::int64_t k : {std::int64_t{0}, std::int64_t{5}}) {
    EXPECT_THROW(accumulate(*problem, shared_out(*problem, {1, 1}), k), Error) << k;
    EXPECT_FALSE(can_accumulate(*problem, shared_out(*problem, {1, 1}), k)) << k;
  }
}

// Two devices have two instances of an op in each micro-batch.
TEST(Accumulate, RefusesMoreInstancesThanAPlanMayHave) {
  constexpr std::int64_t kBatch = std::int64_t{1} << 20;
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, kBatch);
  const Strategy whole = shared_out(*problem, {1, 1});
  int made = 0, refused = 0;
  for (std::int64_t k = 1; k <= kBatch / 2; k *= 2) {
    if (can_accumulate(*problem, whole, k)) {
      EXPECT_NO_THROW(accumulate(*problem, whole, k)) << k;
      ++made;
    } else {
      EXPECT_THROW(accumulate(*problem, whole, k), Error) << k;
      ++refused;
    }
  }
  EXPECT_GT(made, 2);
  EXPECT_GT(refused, 2);
}

struct Interval {
  Nanoseconds first_start = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds last_end = 0;
};

// Where no device waits for another, each is done with a micro-batch before it begins the next.
TEST(Accumulate, RunsOneMicroBatchAfterTheOther) {
  const auto problem = toy_problem(graph::read_graph("tests/data/mlp_sgd.json.gz"), 2, 12);
  const Strategy made = accumulate(*problem, shared_out(*problem, {1, 1}), 3);
  EXPECT_EQ(made.order, OrderPolicy::kPriority);
  const compiler::Plan plan = compiler::compile(*problem, made, {});
  const sim::SimResult result = sim::simulate(plan, made.order);
  // All but the count of labels, which every micro-batch divides by.
  std::set<OpId> ordered;
  for (const OpPriority& one : priorities_of(*problem, made, lay_out(*problem, made))) {
    ordered.insert(one.op);
  }
  EXPECT_GT(ordered.size(), 10u);
  std::map<std::pair<DeviceId, std::int64_t>, Interval> runs;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != compiler::TaskKind::kCompute || !ordered.contains(plan.op[task]))
      continue;
    Interval& run = runs[{plan.device[task], plan.begin[task] / 4}];
    run.first_start = std::min(run.first_start, result.start[task]);
    run.last_end = std::max(run.last_end, result.end[task]);
  }
  ASSERT_EQ(runs.size(), 6u);
  for (std::size_t device = 0; device < 2; ++device) {
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_LE((runs[{DeviceId(device), i}].last_end),
                (runs[{DeviceId(device), i + 1}].first_start))
          << device << " " << i;
    }
  }
}

// Activations of one micro-batch in place of those of the batch.
TEST(Accumulate, TakesLessMemory) {
  const auto problem = model_problem("bert_large24-tiny", 2, 64);
  const Strategy strategy = shared_out(*problem, {1, 1});
  const auto peak = [&](const Strategy& of) {
    const compiler::Plan plan = compiler::compile(*problem, of, {});
    const sim::SimResult result = sim::simulate(plan, of.order);
    return result.peak_bytes[DeviceId(0)] - plan.static_memory[DeviceId(0)].total();
  };
  const Bytes whole = peak(strategy);
  EXPECT_LT(peak(accumulate(*problem, strategy, 4)), whole * 2 / 5);
  EXPECT_LT(peak(accumulate(*problem, strategy, 16)), whole / 5);
}

// Lists of a million entries a unit were made first, and refused after a gigabyte.
TEST(Accumulate, RefusesMoreInstancesThanMemoryHasRoomForBeforeItMakesThem) {
  const auto problem = model_problem("bert_large24-tiny", 4, std::int64_t{1} << 20);
  const Strategy whole = shared_out(*problem, {1, 1, 1, 1});
  try {
    accumulate(*problem, whole, std::int64_t{1} << 20);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string(error.what()).find("1048576 micro-batches: 1048576 instances of each of"),
              std::string::npos)
        << error.what();
  }
  // As a strategy that was read has it, too.
  Strategy read = whole;
  read.micro_batches = std::int64_t{1} << 20;
  EXPECT_THROW(compiler::compile(*problem, read), Error);
}

}  // namespace
}  // namespace heterog::decide

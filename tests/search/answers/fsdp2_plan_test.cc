// Plans for fully_shard: rows of parameters in memory, and the best of every split.
#include "search/answers/fsdp2_plan.h"

#include <gtest/gtest.h>

#include "oracle/evaluator.h"
#include "search/answers/ddp_plan.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

// As torch.chunk cuts axis 0: 7 rows on 3 ranks are 3, 3 and 1, and all hold room for 3.
TEST(Fsdp2Plan, RowsOfParametersArePaddedToTheFirst) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-4gpu", 8);
  const graph::ModelGraph& graph = *problem->graph;
  for (const std::size_t ranks : {2, 3, 4}) {
    Bytes expected = 0;
    for (TensorId parameter : graph.parameters()) {
      const std::int64_t rows = graph.shape(parameter)[0].c;
      std::int64_t most = 0;
      while (most * static_cast<std::int64_t>(ranks) < rows) ++most;
      expected += graph.bytes(parameter, 1) / rows * most;
    }
    EXPECT_EQ(parameter_rows(*problem, ranks), expected);
    EXPECT_GE(parameter_rows(*problem, ranks) * static_cast<Bytes>(ranks),
              graph.parameter_elements() * 4);
  }
  EXPECT_EQ(parameter_rows(*problem, 1), 0);
}

TEST(Fsdp2Plan, DevicesOfThePlanAloneHoldRows) {
  const auto problem = load_test_problem("lenet5-tiny", "heterog-4gpu", 8);
  Samples samples(4, 0);
  samples[DeviceId(0)] = 5;
  samples[DeviceId(2)] = 3;
  const decide::Strategy strategy = fsdp2_strategy(*problem, samples, 1);
  oracle::Evaluator evaluator(*problem);
  WithParameterRows with_rows(evaluator);
  const Measured plain = evaluator.measure(strategy);
  const Measured found = with_rows.measure(std::vector{strategy}).front();
  EXPECT_EQ(found.evaluation.step, plain.evaluation.step);
  EXPECT_EQ(found.busy, plain.busy);
  for (DeviceId device : problem->cluster->device_ids()) {
    EXPECT_EQ(found.peak_bytes[device] - plain.peak_bytes[device],
              samples[device] > 0 ? parameter_rows(*problem, 2) : 0);
  }
}

// What fits without the rows, and not with them, is no plan.
TEST(Fsdp2Plan, FitsWithTheRowsOrNotAtAll) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 8);
  oracle::Evaluator evaluator(*problem);
  Samples samples(4, 2);
  const decide::Strategy strategy = fsdp2_strategy(*problem, samples, 1);
  Measured measured = evaluator.measure(strategy);
  ASSERT_TRUE(measured.evaluation.feasible);
  measured.peak_bytes[DeviceId(1)] = problem->cluster->device(DeviceId(1)).memory_bytes - 1;
  const Measured judged = with_parameter_rows(*problem, strategy, measured);
  EXPECT_FALSE(judged.evaluation.feasible);
  EXPECT_EQ(judged.evaluation.missing_bytes, parameter_rows(*problem, 4) - 1);
}

// 165 splits over four devices, whole or in 2, 4 or 8 micro-batches of what divides them.
TEST(Fsdp2Plan, IsTheBestOfEverySplit) {
  const auto problem = load_test_problem("transformer6", "heterog-4gpu", 8);
  oracle::Evaluator evaluator(*problem);
  WithParameterRows with_rows(evaluator);
  BatchEvaluator asked(with_rows);
  const DdpPlan found = search_ddp(asked, {.in_shards = true}).best;
  ASSERT_TRUE(found.evaluation.feasible);
  EXPECT_EQ(exact_ddp(*problem, found.strategy, true)->samples, found.samples);
  EXPECT_FALSE(exact_ddp(*problem, found.strategy));
  Nanoseconds best = 0;
  for (const std::int64_t parts : {1, 2, 4, 8}) {
    const std::int64_t pass = 8 / parts;
    for (std::int64_t a = 0; a <= pass; ++a) {
      for (std::int64_t b = 0; a + b <= pass; ++b) {
        for (std::int64_t c = 0; a + b + c <= pass; ++c) {
          const Samples samples(std::vector<std::int64_t>{a, b, c, pass - a - b - c});
          const Evaluation one =
              with_rows.measure(std::vector{fsdp2_strategy(*problem, samples, parts)})
                  .front()
                  .evaluation;
          if (one.feasible && (best == 0 || one.step < best)) best = one.step;
        }
      }
    }
  }
  EXPECT_EQ(found.evaluation.step, best);
}

// Where whole state leaves little memory, shares that are searched for with it are not the best.
TEST(Fsdp2Plan, IsSearchedForInShards) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 72);
  oracle::Evaluator evaluator(*problem);
  WithParameterRows with_rows(evaluator);
  const auto found = [&](bool in_shards) {
    BatchEvaluator asked(with_rows);
    const SharesResult result =
        search_shares(asked, {.evaluations = 100, .as_ddp = true, .in_shards = in_shards});
    return asked.evaluate(fsdp2_strategy(*problem, result.best.samples, 1)).evaluation;
  };
  EXPECT_TRUE(better(found(true), found(false)));
}

}  // namespace
}  // namespace heterog::search

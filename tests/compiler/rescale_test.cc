// Plans cut anew for other numbers of samples: the same tasks, on slices that still meet.
#include "compiler/rescale.h"

#include <gtest/gtest.h>

#include "compiler/check/verify_plan.h"
#include "compiler/compile.h"
#include "decide/problems.h"
#include "decide/random_instances.h"

namespace heterog::compiler {
namespace {

using Slices = std::vector<std::pair<std::int64_t, std::int64_t>>;

Slices slices_of(const Plan& plan, OpId op) {
  Slices slices;
  for (TaskId task : plan.task_ids()) {
    if (plan.op[task] == op && plan.kind[task] == TaskKind::kCompute) {
      slices.emplace_back(plan.begin[task], plan.end[task]);
    }
  }
  return slices;
}

// What rescaled() makes anew.
void expect_same_numbers(const Plan& found, const Plan& expected) {
  EXPECT_EQ(found.batch, expected.batch);
  EXPECT_EQ(found.begin, expected.begin);
  EXPECT_EQ(found.end, expected.end);
  EXPECT_EQ(found.moved_bytes, expected.moved_bytes);
  EXPECT_EQ(found.contributions, expected.contributions);
  EXPECT_EQ(found.buffers, expected.buffers);
}

void expect_same_tasks(const Plan& found, const Plan& expected) {
  EXPECT_EQ(found.kind, expected.kind);
  EXPECT_EQ(found.op, expected.op);
  EXPECT_EQ(found.device, expected.device);
  EXPECT_EQ(found.peer, expected.peer);
  EXPECT_EQ(found.participants, expected.participants);
  EXPECT_EQ(found.successors, expected.successors);
  EXPECT_EQ(found.carried, expected.carried);
  EXPECT_EQ(found.allocates, expected.allocates);
  EXPECT_EQ(found.reads, expected.reads);
}

std::vector<Encoding> encodings(const Plan& plan) {
  std::vector<Encoding> found;
  for (const Contribution& one : plan.contributions.values()) found.push_back(one.encoding);
  return found;
}

class Rescaled : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<const cost::Problem> problem(std::int64_t batch,
                                               const std::string& compression = "none") const {
    return decide::with_compression(*decide::toy_problem(graph::read_graph(GetParam()), 3, batch),
                                    compression);
  }
};

TEST_P(Rescaled, ToItsOwnBatchIsThePlan) {
  Rng rng(7);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto made_for = problem(11, decide::random_compression(rng));
    const Plan plan = compile(*made_for, decide::random_instances(*made_for, seed), {});
    const Plan same = rescaled(*at_batch(*made_for, 11), plan);
    expect_same_numbers(same, plan);
    expect_same_tasks(same, plan);
  }
}

// Twice the samples in the same shares are twice each slice: what compiling gives too.
TEST_P(Rescaled, ToTwiceTheBatchIsThePlanForThat) {
  const auto made_for = problem(12), twice = problem(24);
  std::size_t compared = 0;
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kAllReduce, decide::SyncMethod::kParameterServer}) {
    for (const std::vector<double>& weights :
         {std::vector<double>{1, 1, 1}, {1, 2, 3}, {3, 1}, {1}}) {
      decide::UnitDecision decision{.replicas = {}, .sync = sync};
      for (std::size_t i = 0; i < weights.size(); ++i) {
        decision.replicas.push_back({DeviceId(i), weights[i]});
      }
      const decide::Strategy strategy = decide::uniform_strategy(*made_for, decision);
      const Plan plan = compile(*made_for, strategy, {}), whole = compile(*twice, strategy, {});
      // Rows of a table may pay at one batch alone.
      if (plan.kind != whole.kind || encodings(plan) != encodings(whole)) continue;
      ++compared;
      expect_same_numbers(rescaled(*at_batch(*made_for, 24), plan), whole);
      expect_same_numbers(rescaled(*at_batch(*twice, 12), whole), plan);
    }
  }
  EXPECT_GT(compared, 4u);
}

TEST_P(Rescaled, KeepsASampleOfEverySliceWhereItCan) {
  const auto made_for = problem(13);
  bool any_empty = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Plan plan = compile(*made_for, decide::random_instances(*made_for, seed), {});
    const std::int64_t least = least_full_batch(plan);
    EXPECT_LE(least, 13);
    for (std::int64_t batch : {std::int64_t{1}, least - 1, least, std::int64_t{12},
                               std::int64_t{14}, std::int64_t{101}}) {
      if (batch < 1) continue;
      SCOPED_TRACE(testing::Message() << "seed " << seed << " batch " << batch);
      const Plan cut = rescaled(*at_batch(*made_for, batch), plan);
      expect_same_tasks(cut, plan);
      verify_plan(cut, EmptySlices::kAllowed);  // what is left to send of a slice may be empty
      for (TaskId task : cut.task_ids()) {
        if (cut.kind[task] != TaskKind::kCompute || cut.begin[task] < cut.end[task]) continue;
        any_empty = true;
        EXPECT_LT(batch, least);
        EXPECT_GT(cut.begin[task], 0) << "the first slice is empty";
      }
    }
  }
  EXPECT_TRUE(any_empty);
}

INSTANTIATE_TEST_SUITE_P(Graphs, Rescaled,
                         testing::Values("tests/data/batch_norm_sgd.json.gz",
                                         "tests/data/partly_tied.json.gz",
                                         "tests/data/mlp_clipped.json.gz",
                                         "tests/data/transformer_tied.json.gz",
                                         "models/ncf-tiny.json.gz", "models/gnmt4-tiny.json.gz"),
                         [](const auto& info) { return "Graph" + std::to_string(info.index); });

TEST(Boundaries, StayInProportion) {
  const auto made_for = decide::toy_problem(support::tiny_mlp_graph(), 3, 16);
  decide::UnitDecision decision{
      .replicas = {{DeviceId(0), 10}, {DeviceId(1), 5}, {DeviceId(2), 1}}};
  const Plan plan = compile(*made_for, decide::uniform_strategy(*made_for, decision), {});
  const auto first_at = [&](std::int64_t batch) {
    return slices_of(rescaled(*at_batch(*made_for, batch), plan), plan.op[TaskId(0)]);
  };
  EXPECT_EQ(first_at(16), (Slices{{0, 10}, {10, 15}, {15, 16}}));
  EXPECT_EQ(first_at(48), (Slices{{0, 30}, {30, 45}, {45, 48}}));
  // Contributions count by the new shares.
  const Plan seven = rescaled(*at_batch(*made_for, 7), plan);
  std::size_t reduced = 0;
  for (TaskId task : seven.task_ids()) {
    if (seven.kind[task] != TaskKind::kAllReduce) continue;
    ++reduced;
    const auto given = seven.contributions_to(task);
    ASSERT_EQ(given.size(), 3u);
    EXPECT_DOUBLE_EQ(given[0].weight, 4.0 / 7);
    EXPECT_DOUBLE_EQ(given[1].weight, 2.0 / 7);
    EXPECT_DOUBLE_EQ(given[2].weight, 1.0 / 7);
  }
  EXPECT_GT(reduced, 0u);
  // 4.4 : 2.2 : 0.4 samples: the last one keeps one.
  EXPECT_EQ(first_at(7), (Slices{{0, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(first_at(3), (Slices{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(least_full_batch(plan), 3);
  EXPECT_EQ(first_at(2), (Slices{{0, 1}, {1, 2}, {2, 2}}));
  EXPECT_EQ(first_at(1), (Slices{{0, 1}, {1, 1}, {1, 1}}));
}

TEST(AtBatch, RefusesWhatNoGraphHolds) {
  const auto made_for = decide::toy_problem(support::tiny_mlp_graph(), 2, 4);
  EXPECT_EQ(at_batch(*made_for, 9)->batch, 9);
  for (std::int64_t batch : {std::int64_t{0}, std::int64_t{-3}, graph::kMaxSamples + 1}) {
    EXPECT_THROW(at_batch(*made_for, batch), Error) << batch;
  }
}

}  // namespace
}  // namespace heterog::compiler

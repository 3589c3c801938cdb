// Schedules: what a case may decide, strategies that are decided so, and their draws by hand.
#include "policy/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "gnn/problems.h"
#include "oracle/evaluator.h"
#include "planner/starts.h"
#include "policy/case.h"
#include "policy/schedule/schedule_head.h"
#include "support/wide_cluster.h"

namespace heterog::policy {
namespace {

using compiler::OrderPolicy;

Case scheduled_case(OrderPolicy usual = OrderPolicy::kFifo, std::int64_t batch = 32) {
  return make_case("tiny", test_problem("vgg19-tiny", "heterog-4gpu", batch, 12), usual);
}

std::vector<Schedule> all_schedules() {
  std::vector<Schedule> all = {{}};
  for (std::size_t d = 0; d < kDecisions; ++d) {
    std::vector<Schedule> longer;
    for (Schedule schedule : all) {
      for (std::size_t i = 0; i < kOptions[d]; ++i) {
        schedule[d] = static_cast<std::uint8_t>(i);
        longer.push_back(schedule);
      }
    }
    all = std::move(longer);
  }
  return all;
}

bool is_allowed(const ScheduleSpace& space, const Schedule& schedule) {
  for (std::size_t d = 0; d < kDecisions; ++d) {
    if (!space.allows(d, schedule[d])) return false;
  }
  return true;
}

TEST(Schedule, ACaseAllowsWhatItsBatchAndItsSizeDo) {
  const ScheduleSpace space = scheduled_case().schedules;
  EXPECT_EQ(kScheduleOrders[space.usual[kOrder]], OrderPolicy::kFifo);
  EXPECT_TRUE(is_allowed(space, space.usual));
  EXPECT_FALSE(space.allows(kOrder, 3));  // rank-reserve
  EXPECT_TRUE(scheduled_case(OrderPolicy::kRankReserve).schedules.allows(kOrder, 3));
  EXPECT_TRUE(space.allows(kMicroBatches, 2));
  const ScheduleSpace few = scheduled_case(OrderPolicy::kRank, 3).schedules;
  EXPECT_TRUE(few.allows(kMicroBatches, 1));   // 2 of 3 samples
  EXPECT_FALSE(few.allows(kMicroBatches, 2));  // 4 of 3 samples
  const auto wide =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(
                             graph::read_graph("models/mobilenet_v2-tiny.json.gz")),
                         std::make_shared<const cluster::Cluster>(support::wide_cluster()),
                         cost::CalibratedModel(), 2048, {.max_groups = 4});
  ASSERT_TRUE(planner::evaluations_are_costly(*wide));
  EXPECT_TRUE(schedule_space(*wide, OrderPolicy::kRank).allows(kMicroBatches, 0));
  EXPECT_FALSE(schedule_space(*wide, OrderPolicy::kRank).allows(kMicroBatches, 1));
}

TEST(Schedule, TheUsualOneIsTheStrategyAsItWas) {
  const Case c = scheduled_case();
  const Actions actions = plain_strategies(c)[1];
  compiler::Strategy found = standalone_strategy(c, {actions, c.schedules.usual});
  found.unit_of_op.clear();
  EXPECT_EQ(found, strategy_of(c, actions));
}

TEST(Schedule, EachDecisionIsApplied) {
  const Case c = scheduled_case();
  const Actions actions = plain_strategies(c)[1];  // even, all-reduce
  const auto with = [&](std::size_t decision, std::uint8_t option) {
    Choice choice{actions, c.schedules.usual};
    choice.schedule[decision] = option;
    return standalone_strategy(c, choice);
  };
  EXPECT_EQ(with(kOrder, 2).order, OrderPolicy::kRankQueued);
  EXPECT_EQ(with(kBucket, 3).bucket_bytes, 1 << 26);
  EXPECT_TRUE(with(kRecompute, 1).units[UnitId(0)].recompute);
  const compiler::Strategy parts = with(kMicroBatches, 2);
  EXPECT_EQ(parts.units[UnitId(0)].replicas.size(), 4 * c.problem->cluster->device_count());
  EXPECT_EQ(parts.order, OrderPolicy::kPriority);
  oracle::Evaluator evaluator(*c.problem);
  const auto peak = [&](const compiler::Strategy& strategy) {
    const auto peaks = evaluator.measure(strategy).peak_bytes;
    return *std::ranges::max_element(peaks);
  };
  EXPECT_GT(evaluator.evaluate(with(kRecompute, 1)).step,
            evaluator.evaluate(with(kRecompute, 0)).step);
  EXPECT_LT(peak(parts), peak(with(kMicroBatches, 0)));
}

TEST(Schedule, AllThatIsAllowedCanBeSimulated) {
  const Case c = scheduled_case();
  oracle::Evaluator evaluator(*c.problem);
  const std::vector<Actions> plain = plain_strategies(c);
  std::size_t i = 0;
  for (const Schedule& schedule : all_schedules()) {
    if (!is_allowed(c.schedules, schedule)) continue;
    const Choice choice{plain[i++ % plain.size()], schedule};
    EXPECT_GT(evaluator.evaluate(standalone_strategy(c, choice)).step, 0);
  }
  EXPECT_EQ(i, 3u * 5 * 3 * 2);
}

torch::Tensor random_logits(const ScheduleSpace& space) {
  torch::manual_seed(5);
  return schedule_logits(torch::randn({static_cast<std::int64_t>(kAllOptions)}, torch::kFloat64),
                         space);
}

double probability(const torch::Tensor& logits, const ScheduleDraw& draw) {
  return schedule_log_likelihood(logits, {&draw, 1}).exp().item<double>();
}

TEST(ScheduleHead, LikelihoodsOfAllSchedulesAddUpToOne) {
  const ScheduleSpace space = scheduled_case().schedules;
  const torch::Tensor logits = random_logits(space);
  double sum = 0;
  for (const Schedule& schedule : all_schedules()) {
    const double p = probability(logits, {.schedule = schedule});
    sum += p;
    EXPECT_EQ(p > 0, is_allowed(space, schedule));
  }
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(ScheduleHead, DrawsComeAsLikelyAsTheyAreSaidToBe) {
  const ScheduleSpace space = scheduled_case().schedules;
  const torch::Tensor logits = random_logits(space);
  std::map<Schedule, int> counts;
  constexpr int kDraws = 40000;
  for (const ScheduleDraw& draw : draw_schedules(logits, kDraws, Rng(1))) ++counts[draw.schedule];
  for (const Schedule& schedule : all_schedules()) {
    const double expected = kDraws * probability(logits, {.schedule = schedule});
    EXPECT_NEAR(counts[schedule], expected, 5 * std::sqrt(expected) + 1e-9);
  }
  const auto few = draw_schedules(logits, 3, Rng(9)), many = draw_schedules(logits, 50, Rng(9));
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(few[s].schedule, many[s].schedule);
}

// Another option for one decision, by what the network says of the others.
TEST(ScheduleHead, ARedrawnDecisionIsAnotherAsLikelyAsItIsSaidToBe) {
  const ScheduleSpace space = scheduled_case().schedules;
  const torch::Tensor logits = random_logits(space);
  const Schedule incumbent = space.usual;
  std::map<Schedule, int> counts;
  std::map<Schedule, double> expected;
  constexpr int kDraws = 40000;
  for (int s = 0; s < kDraws; ++s) {
    const ScheduleDraw draw = redraw(logits, incumbent, Rng(2).split(s));
    ASSERT_EQ(draw.end, draw.begin + 1);
    ASSERT_NE(draw.schedule[draw.begin], incumbent[draw.begin]);
    ASSERT_TRUE(is_allowed(space, draw.schedule));
    ++counts[draw.schedule];
    expected[draw.schedule] = kDraws / 4.0 * probability(logits, draw);
  }
  double sum = 0;
  for (const auto& [schedule, count] : counts) {
    EXPECT_NEAR(count, expected[schedule], 5 * std::sqrt(expected[schedule]));
    sum += expected[schedule];
  }
  EXPECT_NEAR(sum, kDraws, 1e-6);  // all neighbours have come
  EXPECT_EQ(counts.size(), 2u + 4 + 2 + 1);
}

TEST(ScheduleHead, WhereNothingCanBeDecidedNothingIsDrawn) {
  ScheduleSpace space;
  for (std::size_t d = 0; d < kDecisions; ++d) space.allowed[first_option(d)] = true;
  const torch::Tensor logits = random_logits(space);
  const ScheduleDraw draw = redraw(logits, space.usual, Rng(1));
  EXPECT_EQ(draw.schedule, space.usual);
  EXPECT_EQ(probability(logits, draw), 1);
  EXPECT_EQ(schedule_entropy(logits).item<double>(), 0);
}

TEST(ScheduleHead, BeginsWhereTheCaseStands) {
  const Case c = scheduled_case(OrderPolicy::kRankQueued);
  ScheduleHead head(6, 4);
  const auto scores = head(torch::randn({12, 6}), torch::randn({3, 4}));
  EXPECT_EQ(scores.abs().max().item<double>(), 0);
  const torch::Tensor logits = schedule_logits(scores, c.schedules);
  EXPECT_EQ(most_likely_schedule(logits), c.schedules.usual);
  const double usual = probability(logits, {.schedule = c.schedules.usual});
  EXPECT_GT(usual, 0.6);
  EXPECT_LT(usual, 0.8);
}

TEST(ScheduleHead, EntropyByHandAndFiniteGradients) {
  ScheduleSpace space = scheduled_case().schedules;
  auto scores = torch::zeros({static_cast<std::int64_t>(kAllOptions)}, torch::kFloat64);
  for (std::size_t d = 0; d < kDecisions; ++d) scores[first_option(d) + space.usual[d]] = -3;
  scores.requires_grad_();  // against the prior: all options are as likely
  const auto entropy = schedule_entropy(schedule_logits(scores, space));
  EXPECT_NEAR(entropy.item<double>(), (2 * std::log(3) + std::log(5) + std::log(2)) / 4, 1e-6);
  entropy.backward();
  EXPECT_TRUE(torch::isfinite(scores.grad()).all().item<bool>());
}

}  // namespace
}  // namespace heterog::policy

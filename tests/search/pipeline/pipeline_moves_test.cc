// Search that goes on from pipelines: moves of layers, samples, micro-batches and turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "decide/pass_turns.h"
#include "oracle/evaluator.h"
#include "search/engines/local_search.h"
#include "search/moves/moves.h"
#include "search/pipeline/pipelines.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using decide::Strategy;

// Two stages on the first two devices, one forward and one backward pass in turns.
Strategy two_stages(const cost::Problem& problem, bool strict) {
  const Chain chain = make_chain(problem, 12);
  LayerTimes times(problem, chain);
  const StageCosts costs(times, 4, false);
  const std::size_t layers = chain.layers.size();
  return stage_strategy(
      problem, chain, costs,
      {{{0, layers / 2, {DeviceId(0)}}, {layers / 2, layers, {DeviceId(1), DeviceId(2)}}}},
      {.micro_batches = 4, .strict = strict});
}

TEST(WithUnits, GroupsAreTheUnits) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  const Strategy strategy = two_stages(*problem, false);
  const cost::Problem of_units = with_units(*problem, strategy);
  ASSERT_EQ(of_units.grouping.count(), strategy.units.size());
  std::size_t ops = 0;
  for (GroupId group : id_range<GroupId>(of_units.grouping.count())) {
    for (OpId op : of_units.grouping.members[group]) {
      EXPECT_EQ(strategy.unit_of_op[op].value(), group.value());
      ++ops;
    }
  }
  EXPECT_EQ(ops, problem->graph->op_count());
}

// As where two moves that were made for strict turns are both made, and the first loosens them.
TEST(Apply, TurnsThatArePrioritiesKeepTheirOrder) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  const Strategy strict = two_stages(*problem, true);
  const Move other_order{.order = decide::OrderPolicy::kFifo};
  EXPECT_EQ(apply(strict, other_order).order, decide::OrderPolicy::kFifo);
  const Strategy loosened = apply(strict, {.strict = false});
  EXPECT_EQ(apply(loosened, other_order), loosened);
}

// Whatever is moved, no strategy is refused: turns that could never begin are not strict any more.
class PipelineMoves : public testing::TestWithParam<const char*> {};

TEST_P(PipelineMoves, MakeStrategiesThatRun) {
  const auto problem = load_test_problem(GetParam(), "heterog-4gpu", 16);
  Rng rng(7);
  int strict = 0, loosened = 0, moved_batches = 0;
  for (int walk = 0; walk < 24; ++walk) {
    const Strategy start = two_stages(*problem, walk % 2 == 0);
    const cost::Problem of_units = with_units(*problem, start);
    const MoveMaker maker(of_units);
    oracle::Evaluator evaluator(*problem);
    Incumbent at{start, {}};
    at.measured.peak_bytes.assign(problem->cluster->place_count(), 0);
    for (int i = 0; i < 30; ++i) {
      const auto kind = static_cast<MoveKind>(rng.below(kMoveKindCount));
      Strategy next = maker.moved_to(at.strategy, maker.propose(at, kind, rng));
      const Strategy made = in_one_spelling(next);
      ASSERT_NO_THROW(compiler::compile(*problem, made)) << walk << " " << i;
      strict += made.strict;
      loosened += at.strategy.strict && !made.strict;
      moved_batches += made.micro_batches != start.micro_batches;
      at.strategy = std::move(next);
    }
  }
  EXPECT_GT(strict, 10);
  EXPECT_GT(loosened, 2);
  EXPECT_GT(moved_batches, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineMoves,
                         testing::Values("bert_large24-tiny", "gnmt4-tiny", "transformer6-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Gradients of parameters are made once a device would wait: that fills what 1F1B leaves idle.
TEST(ZeroBubble, MakesGradientsWhereADeviceWouldWait) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 16);
  oracle::Evaluator evaluator(*problem);
  for (bool strict : {false, true}) {
    Strategy strategy = two_stages(*problem, strict);
    const double in_turn = to_seconds(evaluator.evaluate(strategy).step);
    strategy.pattern = Pattern::kZeroBubble;
    EXPECT_LT(to_seconds(evaluator.evaluate(strategy).step), 0.99 * in_turn) << strict;
    const decide::Layout layout = decide::lay_out(*problem, strategy);
    const decide::PassTurns turns(*problem, strategy, layout);
    std::size_t put_off = 0, with_turns = 0;
    for (OpId op : problem->folded->ops) {
      if (turns.is_put_off(op)) {
        EXPECT_FALSE(turns.has_turns(op));
        EXPECT_EQ(problem->graph->op(op).phase, graph::Phase::kBackward);
        ++put_off;
      }
      with_turns += turns.has_turns(op);
    }
    EXPECT_GT(put_off, 100u);
    EXPECT_GT(with_turns, put_off);
  }
}

// A stage that holds layers of both ends cannot take strict turns.
TEST(StagesInLine, AreNotThoseThatReadLaterStages) {
  const auto problem = load_test_problem("bert_large24-tiny", "heterog-4gpu", 16);
  Strategy strategy = two_stages(*problem, true);
  EXPECT_TRUE(decide::stages_in_line(*problem, strategy));
  for (std::size_t unit = 9; unit < strategy.units.size(); ++unit) {
    strategy.units[UnitId(unit)].replicas = strategy.units.raw().front().replicas;
  }
  EXPECT_FALSE(decide::stages_in_line(*problem, strategy));
  EXPECT_THROW(compiler::compile(*problem, strategy), Error);
}

// Search goes on from the start that it is given, in its rounds of a better order, and keeps them.
TEST(LocalSearch, GoesOnFromAPipeline) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 16);
  oracle::Evaluator oracle(*problem);
  BatchEvaluator evaluator(oracle);
  Strategy start = two_stages(*problem, false);
  start.order_rounds = 2;
  const double before = to_seconds(evaluator.evaluate(start).evaluation.step);
  Rng rng(1);
  const SearchResult found = local_search(evaluator, start, rng, {.evaluations = 60});
  EXPECT_LT(to_seconds(found.evaluation.step), 0.97 * before);
  EXPECT_GT(found.strategy.micro_batches, 1);
  EXPECT_EQ(evaluator.refused(), 0);
  EXPECT_GT(found.strategy.order_rounds, 0);
  EXPECT_EQ(found.evaluation.step, evaluator.evaluate(found.strategy).evaluation.step);
}

}  // namespace
}  // namespace heterog::search

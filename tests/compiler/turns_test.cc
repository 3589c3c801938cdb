// Turns that devices take strictly: who waits for whom, and what is refused.
#include "compiler/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "decide/pass_turns.h"
#include "decide/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

// Two micro-batches of one unit on one device of two.
decide::Strategy two_micro_batches(const cost::Problem& problem, decide::Pattern pattern) {
  decide::Strategy strategy;
  strategy.unit_of_op.assign(problem.graph->op_count(), UnitId(0));
  strategy.units.push_back(decide::single_decision(DeviceId(0)));
  strategy.micro_batches = 2;
  strategy.pattern = pattern;
  strategy.strict = true;
  return strategy;
}

// Which turns a device takes, by the starts of tasks: F and B with the number of the micro-batch.
std::string order_of(const cost::Problem& problem, const decide::Strategy& strategy) {
  const Plan plan = compile(problem, strategy, {});
  sim::Simulator simulator;
  const sim::SimResult& result = simulator.simulate_timeline(plan, strategy.order);
  const decide::PassTurns passes(problem, strategy, decide::lay_out(problem, strategy));
  const auto between = decide::ops_between_turns(problem, strategy.unit_of_op);
  std::string order;
  for (TaskId task : result.dispatch) {
    if (plan.kind[task] != TaskKind::kCompute) continue;
    if (!passes.has_turns(plan.op[task]) || between[plan.op[task]]) continue;
    const graph::Phase phase = problem.graph->op(plan.op[task]).phase;
    const std::string turn = (phase == graph::Phase::kForward ? "F" : "B") +
                             std::to_string(plan.begin[task] == 0 ? 1 : 2);
    if (!order.ends_with(turn)) order += order.empty() ? turn : " " + turn;
  }
  return order;
}

TEST(Turns, AreTakenInTheirOrder) {
  const auto problem = decide::toy_problem(graph::read_graph("tests/data/mlp_sgd.json.gz"), 2, 8);
  EXPECT_EQ(order_of(*problem, two_micro_batches(*problem, decide::Pattern::kForwardFirst)),
            "F1 F2 B1 B2");
  EXPECT_EQ(
      order_of(*problem, two_micro_batches(*problem, decide::Pattern::kOneForwardOneBackward)),
      "F1 B1 F2 B2");
  // Both passes of a micro-batch are one turn.
  const std::string depth =
      order_of(*problem, two_micro_batches(*problem, decide::Pattern::kDepthFirst));
  EXPECT_GT(depth.find('2'), depth.rfind('1')) << depth;
}

std::string refusal(const cost::Problem& problem, const decide::Strategy& strategy) {
  try {
    compile(problem, strategy, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

// The last groups on the device of the first, which takes the forward pass of the second
// micro-batch before the backward pass of the first: the other device's turns are the other way
// round.
TEST(Turns, ThatWaitForLaterOnesAreRefused) {
  const auto problem = decide::model_problem("vgg19-tiny", 2, 8);
  decide::Strategy strategy =
      decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0)));
  strategy.micro_batches = 2;
  strategy.pattern = decide::Pattern::kOneForwardOneBackward;
  strategy.strict = true;
  const std::size_t groups = strategy.units.size();
  for (std::size_t i = groups / 2; i < groups * 3 / 4; ++i) {
    strategy.units[UnitId(i)] = decide::single_decision(DeviceId(1));
  }
  EXPECT_THAT(refusal(*problem, strategy),
              testing::HasSubstr("waits for a turn that comes after it in pattern 1f1b; "
                                 "expected turns in an order that the dependencies allow"));
}

TEST(Turns, ThatContradictTheOrderAreRefused) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
  using testing::HasSubstr;
  decide::Strategy strategy = two_micro_batches(*problem, decide::Pattern::kNone);
  EXPECT_THAT(refusal(*problem, strategy), HasSubstr("strict: true without a pattern"));
  strategy.pattern = decide::Pattern::kForwardFirst;
  strategy.order = decide::OrderPolicy::kPriority;
  EXPECT_THAT(refusal(*problem, strategy),
              HasSubstr("order: priority with pattern forward-first, strict; expected order rank"));
  strategy.strict = false;
  EXPECT_EQ(refusal(*problem, strategy), "accepted");
  strategy.priorities = {{problem->folded->ops.front(), 0, 1}};
  EXPECT_THAT(refusal(*problem, strategy), HasSubstr("1 given beside pattern forward-first"));
  strategy.priorities.clear();
  strategy.order = decide::OrderPolicy::kFifo;
  EXPECT_THAT(refusal(*problem, strategy), HasSubstr("not strict; expected order priority"));
  strategy.order = decide::OrderPolicy::kPriority;
  strategy.order_rounds = 1;
  EXPECT_EQ(refusal(*problem, strategy), "accepted");
  strategy.order_rounds = -1;
  EXPECT_THAT(refusal(*problem, strategy), HasSubstr("order_rounds: -1, expected 0 to 1000"));
  decide::Strategy strict = strategy;
  strict.order_rounds = 1;
  strict.strict = true;
  strict.order = decide::OrderPolicy::kRank;
  EXPECT_THAT(refusal(*problem, strict), HasSubstr("order_rounds: 1 of strict turns; expected 0"));
  strategy.order_rounds = 0;
  strategy.micro_batches = 1;
  EXPECT_THAT(refusal(*problem, strategy), HasSubstr("of one micro-batch; expected several"));
}

}  // namespace
}  // namespace heterog::compiler

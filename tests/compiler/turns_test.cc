// Turns that devices take strictly: who waits for whom, and what is refused.
#include "compiler/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/accumulate.h"
#include "compiler/compile.h"
#include "compiler/problems.h"
#include "sim/simulator.h"

namespace heterog::compiler {
namespace {

// The forward pass is unit 0, the rest unit 1, but for what all micro-batches need; two
// micro-batches on one device of two.
Strategy two_micro_batches(const cost::Problem& problem, const std::vector<Turn>& turns) {
  Strategy strategy;
  const auto needed = needed_by_all(problem);
  for (OpId op : problem.graph->op_ids()) {
    const bool forward = problem.graph->op(op).phase == graph::Phase::kForward;
    strategy.unit_of_op.push_back(UnitId(needed[op] ? 2 : forward ? 0 : 1));
  }
  UnitDecision unit{.replicas = {{DeviceId(0), 1}, {DeviceId(0), 1}},
                    .instances = Instances::kPerEntry};
  strategy.units = IdVector<UnitId, UnitDecision>(3, unit);
  strategy.sequence.assign(problem.cluster->device_count(), {});
  strategy.sequence[DeviceId(0)] = turns;
  return strategy;
}

constexpr std::uint32_t kFirst = 0, kSecond = 1;
Turn forward(std::uint32_t entry) { return {UnitId(0), UnitId(1), entry}; }
Turn backward(std::uint32_t entry) { return {UnitId(1), UnitId(2), entry}; }

// Which turns a device takes, by the starts of tasks: F and B with the number of the micro-batch.
std::string order_of(const cost::Problem& problem, const Strategy& strategy) {
  const Plan plan = compile(problem, strategy, {});
  sim::Simulator simulator;
  const sim::SimResult& result = simulator.simulate_timeline(plan, strategy.order);
  std::string order;
  for (TaskId task : result.dispatch) {
    if (plan.kind[task] != TaskKind::kCompute || plan.end[task] - plan.begin[task] != 4) continue;
    const graph::Phase phase = problem.graph->op(plan.op[task]).phase;
    const std::string turn = (phase == graph::Phase::kForward ? "F" : "B") +
                             std::to_string(plan.begin[task] == 0 ? 1 : 2);
    if (!order.ends_with(turn)) order += order.empty() ? turn : " " + turn;
  }
  return order;
}

TEST(Turns, AreTakenInTheirOrder) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 8);
  EXPECT_EQ(order_of(*problem, two_micro_batches(*problem, {forward(kFirst), forward(kSecond),
                                                            backward(kSecond), backward(kFirst)})),
            "F1 F2 B2 B1");
  EXPECT_EQ(order_of(*problem, two_micro_batches(*problem, {forward(kSecond), forward(kFirst),
                                                            backward(kFirst), backward(kSecond)})),
            "F2 F1 B1 B2");
}

std::string refusal(const cost::Problem& problem, const Strategy& strategy) {
  try {
    compile(problem, strategy, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(Turns, ThatWaitForLaterOnesAreRefused) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 8);
  EXPECT_EQ(
      refusal(*problem, two_micro_batches(*problem, {forward(kFirst), backward(kSecond),
                                                     forward(kSecond), backward(kFirst)})),
      "strategy: sequence: turn 1 of device 'm0/gpu0' (unit 1, entry 1) waits for a turn that "
      "comes after it; expected turns in an order that the dependencies allow");
}

TEST(Turns, OfWhatDoesNotRunAreRefused) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 2, 8);
  using testing::HasSubstr;
  const auto with = [&](const std::vector<Turn>& turns) {
    return refusal(*problem, two_micro_batches(*problem, turns));
  };
  EXPECT_THAT(with({{UnitId(0), UnitId(4), 0}}),
              HasSubstr("units 0 to 4, expected a range of the 3"));
  EXPECT_THAT(with({{UnitId(1), UnitId(1), 0}}),
              HasSubstr("units 1 to 1, expected a range of the 3"));
  EXPECT_THAT(with({forward(2)}), HasSubstr("entry 2 of unit 0, which has 2"));
  EXPECT_THAT(with({forward(0), forward(0)}), HasSubstr("entry 0 of unit 0 has a turn already"));
  Strategy elsewhere = two_micro_batches(*problem, {forward(0)});
  std::swap(elsewhere.sequence[DeviceId(0)], elsewhere.sequence[DeviceId(1)]);
  EXPECT_THAT(refusal(*problem, elsewhere), HasSubstr("is on 'm0/gpu0', expected one of this"));
  Strategy merged = two_micro_batches(*problem, {forward(0)});
  merged.units[UnitId(0)].instances = Instances::kPerDevice;
  EXPECT_THAT(refusal(*problem, merged), HasSubstr("unit 0 has an instance per device"));
  Strategy prior = two_micro_batches(*problem, {forward(0)});
  prior.order = OrderPolicy::kPriority;
  prior.priorities = {{problem->folded->ops.front(), 0, 1}};
  EXPECT_THAT(refusal(*problem, prior), HasSubstr("given with order priority"));
  Strategy unequal = two_micro_batches(*problem, {{UnitId(0), UnitId(2), 0}});
  unequal.units[UnitId(1)].replicas[0].weight = 2;
  EXPECT_THAT(refusal(*problem, unequal), HasSubstr("have different devices or weights"));
}

}  // namespace
}  // namespace heterog::compiler

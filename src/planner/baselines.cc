// Planners that return one fixed strategy, or the best of one strategy a device.
#include "planner/baselines.h"

#include "planner/batch_evaluator.h"

namespace heterog::planner {

namespace {

using compiler::Strategy;
using compiler::SyncMethod;

using StrategyFunction = Strategy (*)(const cost::Problem&);

class FixedPlanner final : public Planner {
 public:
  explicit FixedPlanner(StrategyFunction make) : make_(make) {}
  PlannerResult plan(PlannerContext& context) const override {
    PlannerResult result{.strategy = make_(context.problem)};
    Evaluator evaluator(context.problem, context.compile);
    result.evaluation = evaluator.evaluate(result.strategy);
    result.evaluations = evaluator.evaluations();
    return result;
  }

 private:
  StrategyFunction make_;
};

// The best of every device, or of one.
class SinglePlanner final : public Planner {
 public:
  SinglePlanner() = default;
  explicit SinglePlanner(DeviceId device) : device_(device) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> strategies;
    for (DeviceId device : context.problem.cluster->device_ids()) {
      if (device_.valid() && device != device_) continue;
      strategies.push_back(single_device(context.problem, device));
    }
    BatchEvaluator evaluator(context.problem, context.threads, context.compile);
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    std::size_t best = 0;
    for (std::size_t i = 1; i < measured.size(); ++i) {
      if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
    }
    return {.strategy = std::move(strategies[best]),
            .evaluation = measured[best].evaluation,
            .evaluations = evaluator.evaluations()};
  }

 private:
  DeviceId device_;  // invalid: any
};

}  // namespace

Strategy even_ps(const cost::Problem& problem) {
  return uniform_strategy(problem, even_decision(problem, SyncMethod::kParameterServer));
}
Strategy even_all_reduce(const cost::Problem& problem) {
  return uniform_strategy(problem, even_decision(problem, SyncMethod::kAllReduce));
}
Strategy proportional_ps(const cost::Problem& problem) {
  return uniform_strategy(problem, proportional_decision(problem, SyncMethod::kParameterServer));
}
Strategy proportional_all_reduce(const cost::Problem& problem) {
  return uniform_strategy(problem, proportional_decision(problem, SyncMethod::kAllReduce));
}
Strategy horovod(const cost::Problem& problem) {
  Strategy strategy = even_all_reduce(problem);
  strategy.bucket_bytes = kHorovodBucketBytes;
  return strategy;
}
Strategy single_device(const cost::Problem& problem, DeviceId device) {
  return uniform_strategy(problem, compiler::single_decision(device));
}

std::vector<NamedStrategy> baseline_strategies(const cost::Problem& problem) {
  std::vector<NamedStrategy> all = {{"ev-ps", even_ps(problem)},
                                    {"ev-ar", even_all_reduce(problem)},
                                    {"cp-ps", proportional_ps(problem)},
                                    {"cp-ar", proportional_all_reduce(problem)},
                                    {"horovod", horovod(problem)}};
  for (DeviceId device : problem.cluster->device_ids()) {
    all.push_back({"single", single_device(problem, device)});
  }
  return all;
}

std::unique_ptr<const Planner> make_even_ps() { return std::make_unique<FixedPlanner>(even_ps); }
std::unique_ptr<const Planner> make_even_all_reduce() {
  return std::make_unique<FixedPlanner>(even_all_reduce);
}
std::unique_ptr<const Planner> make_proportional_ps() {
  return std::make_unique<FixedPlanner>(proportional_ps);
}
std::unique_ptr<const Planner> make_proportional_all_reduce() {
  return std::make_unique<FixedPlanner>(proportional_all_reduce);
}
std::unique_ptr<const Planner> make_horovod() { return std::make_unique<FixedPlanner>(horovod); }
std::unique_ptr<const Planner> make_single() { return std::make_unique<SinglePlanner>(); }
std::unique_ptr<const Planner> make_single_on(DeviceId device) {
  return std::make_unique<SinglePlanner>(device);
}

}  // namespace heterog::planner

// Planners that try a few fixed strategies.
#include "planner/baselines.h"

#include "planner/batch_evaluator.h"

namespace heterog::planner {

namespace {

using compiler::Strategy;
using compiler::SyncMethod;

// The best of the strategies that stand under one name.
class BaselinePlanner final : public Planner {
 public:
  explicit BaselinePlanner(std::string_view name) : name_(name) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> strategies;
    for (NamedStrategy& baseline : baseline_strategies(context.problem)) {
      if (baseline.name == name_) strategies.push_back(std::move(baseline.strategy));
    }
    return best_of(std::move(strategies), context);
  }

 private:
  static PlannerResult best_of(std::vector<Strategy> strategies, PlannerContext& context) {
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

  std::string_view name_;
};

class SinglePlanner final : public Planner {
 public:
  explicit SinglePlanner(DeviceId device) : device_(device) {}
  PlannerResult plan(PlannerContext& context) const override {
    PlannerResult result{.strategy = single_device(context.problem, device_)};
    Evaluator evaluator(context.problem, context.compile);
    result.evaluation = evaluator.evaluate(result.strategy);
    result.evaluations = evaluator.evaluations();
    return result;
  }

 private:
  DeviceId device_;
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
  std::vector<NamedStrategy> all;
  const auto add = [&](const char* name, Strategy strategy) {
    all.push_back({name, strategy});
    strategy.order = compiler::OrderPolicy::kFifo;
    all.push_back({name, std::move(strategy)});
  };
  add("ev-ps", even_ps(problem));
  add("ev-ar", even_all_reduce(problem));
  add("cp-ps", proportional_ps(problem));
  add("cp-ar", proportional_all_reduce(problem));
  add("horovod", horovod(problem));
  // One device works through all of it in any order.
  for (DeviceId device : problem.cluster->device_ids()) {
    all.push_back({"single", single_device(problem, device)});
  }
  return all;
}

std::unique_ptr<const Planner> make_even_ps() { return std::make_unique<BaselinePlanner>("ev-ps"); }
std::unique_ptr<const Planner> make_even_all_reduce() {
  return std::make_unique<BaselinePlanner>("ev-ar");
}
std::unique_ptr<const Planner> make_proportional_ps() {
  return std::make_unique<BaselinePlanner>("cp-ps");
}
std::unique_ptr<const Planner> make_proportional_all_reduce() {
  return std::make_unique<BaselinePlanner>("cp-ar");
}
std::unique_ptr<const Planner> make_horovod() {
  return std::make_unique<BaselinePlanner>("horovod");
}
std::unique_ptr<const Planner> make_single() { return std::make_unique<BaselinePlanner>("single"); }
std::unique_ptr<const Planner> make_single_on(DeviceId device) {
  return std::make_unique<SinglePlanner>(device);
}

}  // namespace heterog::planner

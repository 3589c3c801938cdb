// Planners that try a few fixed strategies.
#include "search/starts/baselines.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "decide/decisions.h"
#include "search/best_of.h"
#include "search/planner.h"
#include "search/starts/shards.h"

namespace heterog::search {

namespace {

using decide::Strategy;
using decide::SyncMethod;

constexpr std::array<std::string_view, 4> kOrderWords = {"better", "rank", "rank-queued", "fifo"};
constexpr std::string_view kOrderHelp =
    "which ready task starts first: by rank, by rank with the queues on links counted in, the one "
    "ready longest, or whichever order is best";

template <class Options>
constexpr Field<Options> order_field() {
  return {"order", kOrderHelp, choice<Options, &Options::order>(kOrderWords)};
}
constexpr std::array<Field<BaselineOptions>, 1> kBaselineFields = {order_field<BaselineOptions>()};
constexpr std::array<Field<AllReduceOptions>, 2> kAllReduceFields = {
    order_field<AllReduceOptions>(), state_field<AllReduceOptions>()};
constexpr std::array<Field<HorovodOptions>, 3> kHorovodFields = {
    {{"bucket_bytes", "gradients that share one collective",
      IntegerField<HorovodOptions>{&HorovodOptions::bucket_bytes, {1, std::int64_t{1} << 40}}},
     order_field<HorovodOptions>(),
     state_field<HorovodOptions>()}};
constexpr std::array<Field<SingleOptions>, 1> kSingleFields = {
    {{"device", "the device that runs everything",
      DeviceField<SingleOptions>{&SingleOptions::device, "the best one"}}}};

bool in_order(const Strategy& strategy, BaselineOrder order) {
  switch (order) {
    case BaselineOrder::kBetter:
      return true;
    case BaselineOrder::kRank:
      return strategy.order == decide::OrderPolicy::kRank;
    case BaselineOrder::kRankQueued:
      return strategy.order == decide::OrderPolicy::kRankQueued;
    case BaselineOrder::kFifo:
      return strategy.order == decide::OrderPolicy::kFifo;
  }
  ENSURE(false);
}

// All of them, whatever the budget: a baseline counts at its best.
PlannerResult best_of_all(const std::vector<Strategy>& strategies, PlannerContext& context) {
  return best_of(strategies.size(), [&](std::size_t i) { return strategies[i]; }, context.oracle,
                 {});
}

// Data parallelism under one name of baseline_strategies.
class DataParallel final : public Planner {
 public:
  DataParallel(std::string_view name, BaselineOrder order, StateOption state, Bytes bucket_bytes)
      : name_(name), order_(order), state_(state), bucket_bytes_(bucket_bytes) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> whole, strategies;
    for (NamedStrategy& baseline : baseline_strategies(context.problem())) {
      if (baseline.name != name_ || !in_order(baseline.strategy, order_)) continue;
      whole.push_back(std::move(baseline.strategy));
      whole.back().bucket_bytes = bucket_bytes_;
    }
    const bool all = state_ == StateOption::kAuto;
    if (all || state_ == StateOption::kWhole) strategies = whole;
    if (all || state_ == StateOption::kSharded) {
      for (const Strategy& one : whole) strategies.push_back(sharded(one));
    }
    if (!all && state_ != StateOption::kByMemory) return best_of_all(strategies, context);
    // Memory hardly depends on the order.
    BatchEvaluator evaluator(context.oracle);
    const Measured even = evaluator.evaluate(sharded(whole.front()));
    for (const Strategy& one : whole) {
      strategies.push_back(with_rows_by_memory(context.problem(), sharded(one), even.peak_bytes));
    }
    PlannerResult best = best_of_all(strategies, context);
    best.evaluations += evaluator.evaluations();
    return best;
  }

 private:
  std::string_view name_;
  BaselineOrder order_;
  StateOption state_;
  Bytes bucket_bytes_;
};

class Single final : public Planner {
 public:
  explicit Single(const SingleOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    std::vector<Strategy> strategies;
    for (DeviceId device : context.problem().cluster->device_ids()) {
      if (options_.device.valid() && options_.device != device) continue;
      strategies.push_back(single_device(context.problem(), device));
    }
    return best_of_all(strategies, context);
  }

 private:
  SingleOptions options_;
};

PlannerEntry data_parallel_entry(std::string_view name, std::string_view one_line) {
  return planner_entry<BaselineOptions>(
      name, one_line, kBaselineFields, [name](const BaselineOptions& options) {
        return std::make_unique<DataParallel>(name, options.order, StateOption::kWhole, 0);
      });
}

PlannerEntry all_reduce_entry(std::string_view name, std::string_view one_line) {
  return planner_entry<AllReduceOptions>(
      name, one_line, kAllReduceFields, [name](const AllReduceOptions& options) {
        return std::make_unique<DataParallel>(name, options.order, options.state, 0);
      });
}

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
  strategy.bucket_bytes = decide::kHorovodBucketBytes;
  return strategy;
}
Strategy single_device(const cost::Problem& problem, DeviceId device) {
  return uniform_strategy(problem, decide::single_decision(device));
}

std::vector<NamedStrategy> baseline_strategies(const cost::Problem& problem) {
  std::vector<NamedStrategy> all;
  const auto add = [&](const char* name, Strategy strategy) {
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      strategy.order = order;
      all.push_back({name, strategy});
    }
  };
  add("ev-ps", even_ps(problem));
  add("ev-ar", even_all_reduce(problem));
  add("cp-ps", proportional_ps(problem));
  add("cp-ar", proportional_all_reduce(problem));
  add("horovod", horovod(problem));
  // One device works through all of it in any order, as fast as any other of its type and memory.
  std::vector<std::pair<DeviceTypeId, Bytes>> seen;
  for (DeviceId id : problem.cluster->device_ids()) {
    const cluster::Device& device = problem.cluster->device(id);
    const std::pair kind(device.type, device.memory_bytes);
    if (std::ranges::find(seen, kind) != seen.end()) continue;
    seen.push_back(kind);
    all.push_back({"single", single_device(problem, id)});
  }
  return all;
}

std::vector<PlannerEntry> baseline_entries() {
  std::vector<PlannerEntry> entries = {
      data_parallel_entry("ev-ps", "a replica on every device, parameter servers"),
      all_reduce_entry("ev-ar", "a replica on every device, all-reduce"),
      data_parallel_entry("cp-ps", "replicas in proportion to speed, parameter servers"),
      all_reduce_entry("cp-ar", "replicas in proportion to speed, all-reduce"),
      planner_entry<SingleOptions>(
          "single", "everything on one device, the best one (single:DEVICE for a given one)",
          kSingleFields,
          [](const SingleOptions& options) { return std::make_unique<Single>(options); }),
      planner_entry<HorovodOptions>("horovod", "ev-ar with gradients in buckets of 16 MiB",
                                    kHorovodFields, [](const HorovodOptions& options) {
                                      return std::make_unique<DataParallel>(
                                          "horovod", options.order, options.state,
                                          options.bucket_bytes);
                                    })};
  for (PlannerEntry& entry : entries) entry.baseline = true;
  return entries;
}

}  // namespace heterog::search

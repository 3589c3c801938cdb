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

constexpr std::array<Field<AllReduceOptions>, 2> kAllReduceFields = {
    baseline_order_field<AllReduceOptions>(), state_field<AllReduceOptions>()};
constexpr std::array<Field<HorovodOptions>, 3> kHorovodFields = {
    {{"bucket_bytes", "gradients that share one collective; tuned: the best of a few sizes",
      IntegerField<HorovodOptions>{
          &HorovodOptions::bucket_bytes, {1, std::int64_t{1} << 40}, "tuned", kTunedBuckets}},
     baseline_order_field<HorovodOptions>(),
     state_field<HorovodOptions>()}};
constexpr std::array<Field<SingleOptions>, 1> kSingleFields = {
    {{"device", "the device that runs everything",
      DeviceField<SingleOptions>{&SingleOptions::device, "the best one"}}}};

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
    if (bucket_bytes_ == kTunedBuckets && name_ == "horovod") return tuned(context);
    return plan_with(context, order_, bucket_bytes_);
  }

 private:
  // Every second size in the order that is best at the default one, the sizes beside the best, then
  // all orders: 16 plans where the state is whole.
  PlannerResult tuned(PlannerContext& context) const {
    constexpr Bytes kLeast = Bytes{1} << 20, kMost = Bytes{1} << 28;
    PlannerResult best = plan_with(context, order_, decide::kHorovodBucketBytes);
    std::int64_t evaluations = best.evaluations;
    const auto consider = [&](BaselineOrder order, Bytes bytes) {
      PlannerResult next = plan_with(context, order, bytes);
      evaluations += next.evaluations;
      if (better(next.evaluation, best.evaluation)) best = std::move(next);
    };
    const BaselineOrder order = order_of(best.strategy);
    for (Bytes bytes = kLeast; bytes <= kMost; bytes *= 4) {
      if (bytes != decide::kHorovodBucketBytes) consider(order, bytes);
    }
    const Bytes middle = best.strategy.bucket_bytes;
    for (Bytes bytes : {middle / 2, middle * 2, middle / 4 * 3, middle / 2 * 3}) {
      if (bytes >= kLeast && bytes <= kMost) consider(order, bytes);
    }
    if (order != order_) consider(order_, best.strategy.bucket_bytes);
    best.evaluations = evaluations;
    return best;
  }

  static BaselineOrder order_of(const Strategy& strategy) {
    for (BaselineOrder order :
         {BaselineOrder::kRank, BaselineOrder::kRankQueued, BaselineOrder::kFifo}) {
      if (in_order(strategy, order)) return order;
    }
    ENSURE(false);
  }

  PlannerResult plan_with(PlannerContext& context, BaselineOrder order, Bytes bucket_bytes) const {
    std::vector<Strategy> whole, strategies;
    for (NamedStrategy& baseline : baseline_strategies(context.problem())) {
      if (baseline.name != name_ || !in_order(baseline.strategy, order)) continue;
      whole.push_back(std::move(baseline.strategy));
      whole.back().bucket_bytes = bucket_bytes;
    }
    const bool all = state_ == StateOption::kAuto;
    if (all || state_ == StateOption::kWhole) strategies = whole;
    if (all || state_ == StateOption::kSharded) {
      for (const Strategy& one : whole) strategies.push_back(sharded(one));
    }
    if (state_ == StateOption::kGathered) return best_gathered(whole, context);
    if (!all && state_ != StateOption::kByMemory) return best_of_all(strategies, context);
    const std::int64_t measured = add_by_memory(whole, sharded, context, strategies);
    PlannerResult best = best_of_all(strategies, context);
    best.evaluations += measured;
    if (!all || best.evaluation.feasible) return best;
    PlannerResult last = best_gathered(whole, context);
    const std::int64_t evaluations = best.evaluations + last.evaluations;
    if (better(last.evaluation, best.evaluation)) best = std::move(last);
    best.evaluations = evaluations;
    return best;
  }

  // Rows by memory of each, made `in_rows`; returns how many plans that took. Memory hardly depends
  // on the order.
  static std::int64_t add_by_memory(const std::vector<Strategy>& whole,
                                    Strategy (*in_rows)(Strategy), PlannerContext& context,
                                    std::vector<Strategy>& strategies) {
    BatchEvaluator evaluator(context.oracle);
    const Measured even = evaluator.evaluate(in_rows(whole.front()));
    for (const Strategy& one : whole) {
      strategies.push_back(with_rows_by_memory(context.problem(), in_rows(one), even.peak_bytes));
    }
    return evaluator.evaluations();
  }

  // Of equal rows, or where these do not fit by memory: a device whose memory is full gets none of
  // what is small, which then lies in rows nowhere.
  static PlannerResult best_gathered(const std::vector<Strategy>& whole, PlannerContext& context) {
    std::vector<Strategy> strategies;
    for (const Strategy& one : whole) strategies.push_back(gathered(one));
    PlannerResult best = best_of_all(strategies, context);
    if (best.evaluation.feasible) return best;
    std::vector<Strategy> by_memory;
    std::int64_t evaluations = add_by_memory(whole, gathered, context, by_memory);
    PlannerResult other = best_of_all(by_memory, context);
    evaluations += best.evaluations + other.evaluations;
    if (better(other.evaluation, best.evaluation)) best = std::move(other);
    best.evaluations = evaluations;
    return best;
  }

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

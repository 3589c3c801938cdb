// Sets of devices to do without, the most promising first; each is one try.
#include "search/answers/leave_out.h"

#include <algorithm>
#include <utility>

#include "search/moves/move.h"
#include "search/starts/starts.h"

namespace heterog::search {

namespace {

using Devices = std::vector<DeviceId>;

// Who does less than this part of an equal share is hardly used.
constexpr double kHardly = 0.1;
constexpr std::int64_t kMostTries = 16;

// Sets that a plan may do without, none twice, none that leaves nobody.
class Sets {
 public:
  Sets(const cluster::Cluster& cluster, const IdVector<DeviceId, double>& work)
      : cluster_(cluster), work_(work) {
    for (DeviceId device : cluster.device_ids()) {
      if (work[device] > 0) used_.push_back(device);
    }
    by_work_ = used_;
    std::ranges::stable_sort(by_work_, {}, [&](DeviceId device) { return work[device]; });
  }

  std::vector<Devices> all() {
    const double equal = 1 / static_cast<double>(used_.size());
    const auto hardly = [&](DeviceId device) { return work_[device] < kHardly * equal; };
    add(hardly);
    for (DeviceId one : by_work_) {
      if (hardly(one)) add([&](DeviceId device) { return device == one; });
    }
    for (DeviceId one : by_work_) {
      const MachineId machine = cluster_.device(one).machine;
      add([&](DeviceId device) { return cluster_.device(device).machine == machine; });
    }
    for (DeviceId one : by_work_) {
      const DeviceTypeId type = cluster_.device(one).type;
      add([&](DeviceId device) { return cluster_.device(device).type == type; });
    }
    for (DeviceId one : by_work_) add([&](DeviceId device) { return device == one; });
    return std::move(sets_);
  }

 private:
  template <class Member>
  void add(const Member& member) {
    Devices set;
    std::ranges::copy_if(used_, std::back_inserter(set), member);
    if (set.empty() || set.size() == used_.size()) return;
    if (std::ranges::find(sets_, set) == sets_.end()) sets_.push_back(std::move(set));
  }

  const cluster::Cluster& cluster_;
  const IdVector<DeviceId, double>& work_;
  Devices used_, by_work_;
  std::vector<Devices> sets_;
};

}  // namespace

IdVector<DeviceId, double> work_shares(const cost::Problem& problem,
                                       const decide::Strategy& strategy) {
  IdVector<UnitId, double> seconds(strategy.units.size(), 0.0);
  for (OpId op : problem.folded->ops) {
    seconds[decide::unit_of(problem, strategy, op)] += problem.costs.mean_seconds(op);
  }
  IdVector<DeviceId, double> work(problem.cluster->device_count(), 0.0);
  double sum = 0;
  for (UnitId unit : id_range<UnitId>(strategy.units.size())) {
    for (const decide::Slice& slice :
         decide::slice_batch(strategy.units[unit].replicas, problem.batch)) {
      const double part = seconds[unit] * static_cast<double>(slice.size());
      work[slice.device] += part;
      sum += part;
    }
  }
  for (double& part : work) part /= sum > 0 ? sum : 1;
  return work;
}

std::optional<decide::Strategy> without_devices(const cost::Problem& problem,
                                                const decide::Strategy& strategy,
                                                std::span<const DeviceId> devices) {
  IdVector<DeviceId, bool> out(problem.cluster->device_count(), false);
  for (DeviceId device : devices) out[device] = true;
  decide::Strategy fewer = movable(strategy);
  const Replicas* last = nullptr;  // of the group before
  std::vector<decide::UnitDecision*> orphans;
  for (decide::UnitDecision& unit : fewer.units) {
    std::erase_if(unit.replicas,
                  [&](const decide::Replica& replica) { return out[replica.device]; });
    if (!unit.replicas.empty()) {
      last = &unit.replicas;
      for (decide::UnitDecision* orphan : std::exchange(orphans, {})) orphan->replicas = *last;
    } else if (last != nullptr) {
      unit.replicas = *last;
    } else {
      orphans.push_back(&unit);
    }
  }
  if (last == nullptr) return std::nullopt;
  return in_one_spelling(std::move(fewer));
}

std::int64_t affordable_tries(const cost::Problem& problem) {
  return std::clamp<std::int64_t>(one_shot_evaluations(problem) / 32, 1, kMostTries);
}

std::optional<FewerDevices> leave_out(BatchEvaluator& evaluator, const decide::Strategy& strategy,
                                      const Evaluation& evaluation,
                                      const LeaveOutOptions& options) {
  if (!evaluation.feasible || strategy.micro_batches > 1) return std::nullopt;
  const cost::Problem& problem = evaluator.problem();
  std::vector<FewerDevices> tries;
  std::vector<decide::Strategy> strategies;
  const IdVector<DeviceId, double> work = work_shares(problem, strategy);
  for (Devices& set : Sets(*problem.cluster, work).all()) {
    if (static_cast<std::int64_t>(tries.size()) >= options.most) break;
    auto fewer = without_devices(problem, strategy, set);
    if (!fewer) continue;
    strategies.push_back(*fewer);
    tries.push_back({std::move(set), std::move(*fewer), {}});
  }
  const std::vector<Measured> measured = evaluator.evaluate(strategies);
  const double longest = to_seconds(evaluation.step) * (1 + options.tolerance);
  std::optional<FewerDevices> best;
  for (std::size_t i = 0; i < tries.size(); ++i) {
    const Evaluation& now = measured[i].evaluation;
    const bool fast = now.step <= evaluation.step || to_seconds(now.step) <= longest;
    if (!now.feasible || !fast) continue;
    const auto rank = [](const FewerDevices& one) {
      return std::pair(-static_cast<std::ptrdiff_t>(one.left_out.size()), one.evaluation.step);
    };
    tries[i].evaluation = now;
    if (!best || rank(tries[i]) < rank(*best)) best = std::move(tries[i]);
  }
  return best;
}

}  // namespace heterog::search

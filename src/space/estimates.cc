// Estimates of a group's actions from its summary, the cost table and the formulas of collectives.
#include "space/estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace heterog::space {

namespace {

// Seconds of every op of a group on `samples` samples; an op that cannot be sliced takes the batch.
double group_seconds(const cost::Problem& problem, GroupId group, DeviceTypeId type,
                     std::int64_t samples) {
  Nanoseconds sum = 0;
  for (OpId op : problem.grouping.members[group]) {
    if (problem.graph->op(op).alias) continue;
    const bool sliced = problem.splits->sliceable[op];
    sum += problem.costs.duration(op, type, sliced ? samples : problem.batch);
  }
  return to_seconds(sum);
}

// The whole batch over all devices.
struct Replication {
  IdVector<DeviceId, std::int64_t> samples;
  double activation_per_byte = 0;  // worst over devices of (slice/batch)/capacity
  double state_per_byte = 0;       // worst over devices of 1/capacity
};

// `weights` by device: all 1, or in proportion to speed.
Replication replication(const EstimateInput& input, const std::vector<int>& weights) {
  const auto batch = static_cast<double>(input.problem.batch);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  Replication made;
  for (DeviceId device : input.problem.cluster->device_ids()) {
    const auto samples =
        static_cast<std::int64_t>(std::ceil(batch * weights[device.value()] / total));
    const double capacity = input.cluster.devices[device].capacity_bytes;
    made.samples.push_back(samples);
    made.activation_per_byte =
        std::max(made.activation_per_byte, static_cast<double>(samples) / batch / capacity);
    made.state_per_byte = std::max(made.state_per_byte, 1.0 / capacity);
  }
  return made;
}

double replicated_seconds(const cost::Problem& problem, GroupId group, const Replication& r) {
  std::map<std::pair<DeviceTypeId, std::int64_t>, double> known;  // few types, few slice sizes
  double slowest = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    const DeviceTypeId type = problem.cluster->device(device).type;
    auto [it, is_new] = known.try_emplace({type, r.samples[device]}, 0.0);
    if (is_new) it->second = group_seconds(problem, group, type, r.samples[device]);
    slowest = std::max(slowest, it->second);
  }
  return slowest;
}

class Estimator {
 public:
  explicit Estimator(const EstimateInput& input)
      : input_(input),
        even_(replication(input, std::vector<int>(input.problem.cluster->device_count(), 1))),
        proportional_(replication(input, input.problem.proportional)) {
    for (const GroupSummary& group : input.groups) {
      state_ += static_cast<double>(group.state_bytes());
      activation_ += static_cast<double>(group.activation_bytes);
    }
  }

  ActionEstimates run() const {
    ActionEstimates estimates{.action_count = input_.actions.size()};
    for (GroupId group : id_range<GroupId>(input_.groups.size())) {
      const Seconds seconds = seconds_of(group);
      estimates.even_seconds += seconds.even;
      double compute = std::numeric_limits<double>::infinity();
      double total = compute;
      for (ActionId action : input_.actions.ids()) {
        const ActionEstimate estimate = estimate_of(group, input_.actions[action], seconds);
        compute = std::min(compute, estimate.compute_seconds);
        total = std::min(total, estimate.compute_seconds + estimate.sync_seconds);
        estimates.values.push_back(estimate);
      }
      estimates.least_compute_seconds.push_back(compute);
      estimates.least_total_seconds.push_back(total);
    }
    return estimates;
  }

 private:
  // Of one group, computed once for all of its actions.
  struct Seconds {
    IdVector<DeviceTypeId, double> whole;  // the batch on one device
    double even = 0, proportional = 0;     // of the slowest replica
  };
  Seconds seconds_of(GroupId group) const {
    const cost::Problem& problem = input_.problem;
    Seconds seconds{.even = replicated_seconds(problem, group, even_),
                    .proportional = replicated_seconds(problem, group, proportional_)};
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem.cluster->type_count())) {
      seconds.whole.push_back(group_seconds(problem, group, type, problem.batch));
    }
    return seconds;
  }

  ActionEstimate estimate_of(GroupId group, const Action& action, const Seconds& seconds) const {
    const auto state = static_cast<double>(input_.groups[group].state_bytes());
    const auto activation = static_cast<double>(input_.groups[group].activation_bytes);
    const GroupCommunication& communication = input_.communication[group];
    if (action.placement == Placement::kSingle) {
      const DeviceSummary& device = input_.cluster.devices[action.device];
      const auto boundary = static_cast<double>(communication.bytes_in + communication.bytes_out);
      return {.compute_seconds = seconds.whole[input_.problem.cluster->device(action.device).type],
              .boundary_seconds = boundary * device.seconds_per_byte,
              .state_share = state / device.capacity_bytes,
              .activation_share = activation / device.capacity_bytes,
              .model_share = (state_ + activation_) / device.capacity_bytes};
    }
    const bool even = action.placement == Placement::kEven;
    const Replication& r = even ? even_ : proportional_;
    return {.compute_seconds = even ? seconds.even : seconds.proportional,
            .sync_seconds = action.sync == compiler::SyncMethod::kParameterServer
                                ? communication.parameter_server_seconds
                                : communication.all_reduce_seconds,
            .state_share = state * r.state_per_byte,
            .activation_share = activation * r.activation_per_byte,
            .model_share = state_ * r.state_per_byte + activation_ * r.activation_per_byte};
  }

  const EstimateInput& input_;
  Replication even_, proportional_;
  double state_ = 0, activation_ = 0;  // bytes of the model
};

}  // namespace

ActionEstimates estimate_actions(const EstimateInput& input) { return Estimator(input).run(); }

}  // namespace heterog::space

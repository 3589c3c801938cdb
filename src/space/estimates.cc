// Estimates of a group's actions from its summary, the cost table and the formulas of collectives.
#include "space/estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

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

// The whole batch over some devices.
struct Replication {
  std::vector<std::pair<DeviceTypeId, std::int64_t>> slices;  // distinct
  double activation_per_byte = 0;  // worst over its devices of (slice/batch)/capacity
  double state_per_byte = 0;       // worst over its devices of 1/capacity
  double boundary_per_byte = 0;    // s to move a byte of the batch between these and all devices
  double devices_share = 0;
};

Replication replication(const EstimateInput& input, const std::vector<decide::Replica>& replicas) {
  const cluster::Cluster& cluster = *input.problem.cluster;
  const auto batch = static_cast<double>(input.problem.batch);
  double total = 0, slope = 0;
  for (const decide::Replica& replica : replicas) total += replica.weight;
  Replication made;
  std::set<std::pair<DeviceTypeId, std::int64_t>> slices;
  for (const auto& [device, weight] : replicas) {
    const auto samples = static_cast<std::int64_t>(std::ceil(batch * weight / total));
    const DeviceSummary& summary = input.cluster.devices[device];
    const double share = static_cast<double>(samples) / batch;
    slices.emplace(cluster.device(device).type, samples);
    made.activation_per_byte = std::max(made.activation_per_byte, share / summary.capacity_bytes);
    made.state_per_byte = std::max(made.state_per_byte, 1.0 / summary.capacity_bytes);
    slope = std::max(slope, share * summary.seconds_per_byte);
  }
  made.slices.assign(slices.begin(), slices.end());
  made.devices_share =
      static_cast<double>(replicas.size()) / static_cast<double>(cluster.device_count());
  // What the others had comes in and goes out.
  made.boundary_per_byte = slope * (1 - made.devices_share);
  return made;
}

double replicated_seconds(const cost::Problem& problem, GroupId group, const Replication& r) {
  double slowest = 0;
  for (const auto& [type, samples] : r.slices) {
    slowest = std::max(slowest, group_seconds(problem, group, type, samples));
  }
  return slowest;
}

// By row of the table; single devices have none.
std::size_t replication_of(const Action& action) {
  switch (action.placement) {
    case Placement::kEven:
      return 0;
    case Placement::kProportional:
      return 1;
    case Placement::kBalanced:
      return 2 + action.set.value();
    case Placement::kSingle:
      break;
  }
  ENSURE(false);
}

class Estimator {
 public:
  explicit Estimator(const EstimateInput& input) : input_(input) {
    for (auto decision : {decide::even_decision, decide::proportional_decision}) {
      replications_.push_back(
          replication(input, decision(input.problem, decide::SyncMethod::kAllReduce).replicas));
      sync_.emplace_back();  // as the communication of the groups says
    }
    for (SetId set : input.actions.sets()) {
      replications_.push_back(replication(input, input.actions.replicas(set)));
      std::vector<DeviceId> devices;
      for (const auto& replica : input.actions.replicas(set)) devices.push_back(replica.device);
      sync_.push_back(summarize_sync(input.problem, devices));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      for (const GroupCommunication& group : input.communication) {
        sync_[i].push_back({group.all_reduce_seconds, group.parameter_server_seconds});
      }
    }
    for (const GroupSummary& group : input.groups) {
      state_ += static_cast<double>(group.state_bytes());
      activation_ += static_cast<double>(group.activation_bytes);
    }
  }

  ActionEstimates run() const {
    ActionEstimates estimates{.action_count = input_.actions.size()};
    estimates.model.resize(input_.actions.size());
    for (GroupId group : id_range<GroupId>(input_.groups.size())) {
      const Seconds seconds = seconds_of(group);
      estimates.even_seconds += seconds.replicated[0];
      double compute = std::numeric_limits<double>::infinity();
      double total = compute;
      for (ActionId action : input_.actions.ids()) {
        const ActionEstimate estimate = estimate_of(group, input_.actions[action], seconds);
        compute = std::min(compute, estimate.compute_seconds);
        total = std::min(total, estimate.compute_seconds + estimate.sync_seconds);
        estimates.model[action].compute_seconds += estimate.compute_seconds;
        estimates.model[action].sync_seconds += estimate.sync_seconds;
        estimates.values.push_back(estimate);
      }
      estimates.least_compute_seconds.push_back(compute);
      estimates.least_total_seconds.push_back(total);
    }
    estimates.least_overlapped_seconds = estimates.least_serial_seconds =
        std::numeric_limits<double>::infinity();
    for (const ModelEstimate& model : estimates.model) {
      estimates.least_overlapped_seconds =
          std::min(estimates.least_overlapped_seconds, model.overlapped_seconds());
      estimates.least_serial_seconds =
          std::min(estimates.least_serial_seconds, model.serial_seconds());
    }
    return estimates;
  }

 private:
  // Of one group, computed once for all of its actions.
  struct Seconds {
    IdVector<DeviceTypeId, double> whole;  // the batch on one device
    std::vector<double> replicated;        // of the slowest replica
  };
  Seconds seconds_of(GroupId group) const {
    const cost::Problem& problem = input_.problem;
    Seconds seconds;
    for (const Replication& r : replications_) {
      seconds.replicated.push_back(replicated_seconds(problem, group, r));
    }
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem.cluster->type_count())) {
      seconds.whole.push_back(group_seconds(problem, group, type, problem.batch));
    }
    return seconds;
  }

  ActionEstimate estimate_of(GroupId group, const Action& action, const Seconds& seconds) const {
    const auto state = static_cast<double>(input_.groups[group].state_bytes());
    const auto activation = static_cast<double>(input_.groups[group].activation_bytes);
    const GroupCommunication& communication = input_.communication[group];
    const auto boundary = static_cast<double>(communication.bytes_in + communication.bytes_out);
    if (action.placement == Placement::kSingle) {
      const DeviceSummary& device = input_.cluster.devices[action.device];
      return {.devices_share = 1.0 / static_cast<double>(input_.cluster.devices.size()),
              .compute_seconds = seconds.whole[input_.problem.cluster->device(action.device).type],
              .boundary_seconds = boundary * device.seconds_per_byte,
              .state_share = state / device.capacity_bytes,
              .activation_share = activation / device.capacity_bytes,
              .model_share = (state_ + activation_) / device.capacity_bytes};
    }
    const std::size_t which = replication_of(action);
    const Replication& r = replications_[which];
    const SyncSeconds& sync = sync_[which][group];
    return {.devices_share = r.devices_share,
            .compute_seconds = seconds.replicated[which],
            .sync_seconds = action.sync == decide::SyncMethod::kParameterServer
                                ? sync.parameter_server
                                : sync.all_reduce,
            .boundary_seconds = boundary * r.boundary_per_byte,
            .state_share = state * r.state_per_byte,
            .activation_share = activation * r.activation_per_byte,
            .model_share = state_ * r.state_per_byte + activation_ * r.activation_per_byte};
  }

  const EstimateInput& input_;
  std::vector<Replication> replications_;  // even, proportional, then one a set
  std::vector<IdVector<GroupId, SyncSeconds>> sync_;
  double state_ = 0, activation_ = 0;  // bytes of the model
};

}  // namespace

ActionEstimates estimate_actions(const EstimateInput& input) { return Estimator(input).run(); }

}  // namespace heterog::space

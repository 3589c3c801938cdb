// Estimates of each action for each group, without simulation.
#pragma once

#include <algorithm>
#include <vector>

#include "space/action_space.h"
#include "space/cluster_summary.h"
#include "space/communication.h"
#include "space/group_summary.h"

namespace heterog::space {

struct ActionEstimate {
  double devices_share = 0;     // of the cluster's devices that take part
  double compute_seconds = 0;   // of the slowest replica
  double sync_seconds = 0;      // gradients; 0 for a single device
  double boundary_seconds = 0;  // data from and to other groups, if those were on all devices
  double state_share = 0;       // parameter state over the capacity of the tightest device
  double activation_share = 0;
  double model_share = 0;  // the same of the whole model under this action
};

// Estimates of the whole model, every group under the same action.
struct ModelEstimate {
  double compute_seconds = 0, sync_seconds = 0;  // sums over the groups
  // The step, with all of the aggregation beside the computation, and with all of it after.
  double overlapped_seconds() const { return std::max(compute_seconds, sync_seconds); }
  double serial_seconds() const { return compute_seconds + sync_seconds; }
};

struct ActionEstimates {
  std::size_t action_count = 0;
  std::vector<ActionEstimate> values;  // [group][action]
  const ActionEstimate& at(GroupId group, ActionId action) const {
    return values[group.value() * action_count + action.value()];
  }
  // Least of compute and of compute + sync over the actions of a group.
  IdVector<GroupId, double> least_compute_seconds, least_total_seconds;
  IdVector<ActionId, ModelEstimate> model;
  double least_overlapped_seconds = 0, least_serial_seconds = 0;  // over the actions of the model
  double even_seconds = 0;  // of the whole model on equal shares, group after group
};

struct EstimateInput {
  const cost::Problem& problem;
  const ActionSpace& actions;
  const ClusterSummary& cluster;
  const GroupSummaries& groups;
  const IdVector<GroupId, GroupCommunication>& communication;
};
ActionEstimates estimate_actions(const EstimateInput& input);

}  // namespace heterog::space

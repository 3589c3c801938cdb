// What each action means for each group, estimated without simulation.
#pragma once

#include <vector>

#include "space/action_space.h"
#include "space/cluster_summary.h"
#include "space/communication.h"
#include "space/group_summary.h"

namespace heterog::space {

struct ActionEstimate {
  double compute_seconds = 0;   // of the slowest replica
  double sync_seconds = 0;      // gradients; 0 for a single device
  double boundary_seconds = 0;  // data from and to other groups, if those were elsewhere
  double state_share = 0;       // parameter state over the capacity of the tightest device
  double activation_share = 0;
  double model_share = 0;  // the same of the whole model under this action
};

struct ActionEstimates {
  std::size_t action_count = 0;
  std::vector<ActionEstimate> values;  // [group][action]
  const ActionEstimate& at(GroupId group, ActionId action) const {
    return values[group.value() * action_count + action.value()];
  }
  // Least of compute and of compute + sync over the actions of a group.
  IdVector<GroupId, double> least_compute_seconds, least_total_seconds;
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

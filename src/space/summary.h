// All that is known of a problem before anything is simulated: what the features of the network are
// made of.
#pragma once

#include "space/action_space.h"
#include "space/cluster_summary.h"
#include "space/communication.h"
#include "space/estimates.h"
#include "space/group_summary.h"
#include "space/op_graph.h"
#include "space/spans.h"

namespace heterog::space {

// Everything is in seconds and bytes. The problem has to outlive it. Who needs one part makes that
// part: estimates and communication take time that grows with groups × devices and devices².
struct Summary {
  explicit Summary(const cost::Problem& problem, ActionTable table = ActionTable::kHeterog);

  const cost::Problem& problem;
  OpGraph ops;
  ActionSpace actions;
  ClusterSummary cluster;
  GroupSummaries groups;
  IdVector<GroupId, GroupCommunication> communication;
  ActionEstimates estimates;
  Spans spans;
  // Sums over the groups.
  double total_seconds = 0;
  Bytes total_state_bytes = 0, total_activation_bytes = 0;
};

}  // namespace heterog::space

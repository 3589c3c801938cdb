// Puts the parts together.
#include "space/summary.h"

namespace heterog::space {

Summary::Summary(const cost::Problem& problem, ActionTable table)
    : problem(problem),
      ops(make_op_graph(problem)),
      actions(problem, table),
      cluster(summarize_cluster(problem)),
      groups(summarize_groups(problem)),
      communication(summarize_communication(problem, ops)),
      estimates(estimate_actions({problem, actions, cluster, groups, communication})),
      spans(lay_end_to_end(groups, cluster)) {
  for (const GroupSummary& group : groups) {
    total_seconds += group.seconds;
    total_state_bytes += group.state_bytes();
    total_activation_bytes += group.activation_bytes;
  }
}

}  // namespace heterog::space

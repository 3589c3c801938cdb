// The one table of planners, joined from those of folders that do not know each other.
#include "cli/planner_table.h"

#include <utility>

#include "policy/api.h"

namespace heterog::cli {

const planner::Registry& planner_registry() {
  static const planner::Registry kRegistry = [] {
    std::vector<planner::PlannerEntry> entries = planner::builtin_planners();
    entries.push_back(policy::policy_planner_entry());
    return planner::Registry(std::move(entries));
  }();
  return kRegistry;
}

std::unique_ptr<const planner::Planner> find_planner(const std::string& request,
                                                     const cluster::Cluster& cluster,
                                                     const std::string& policy) {
  planner::PlannerRequest asked = planner::parse_request(request);
  if (!policy.empty() && planner_registry().entry(asked.name).has_option("checkpoint")) {
    // In front: what stands later counts.
    asked.settings.insert(asked.settings.begin(), {"checkpoint", policy});
  }
  return planner_registry().make(asked, cluster);
}

}  // namespace heterog::cli

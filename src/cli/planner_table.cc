// The one table of planners, joined from those of folders that do not know each other.
#include "cli/planner_table.h"

#include <utility>

#include "learn/api.h"
#include "learn/placers/placers.h"

namespace heterog::cli {

const search::Registry& planner_registry() {
  static const search::Registry kRegistry = [] {
    std::vector<search::PlannerEntry> entries = search::builtin_planners();
    entries.push_back(learn::policy_planner_entry());
    for (search::PlannerEntry& entry : learn::placer_entries()) entries.push_back(std::move(entry));
    return search::Registry(std::move(entries));
  }();
  return kRegistry;
}

std::unique_ptr<const search::Planner> find_planner(const std::string& request,
                                                    const cluster::Cluster& cluster,
                                                    const std::string& policy) {
  search::PlannerRequest asked = search::parse_request(request);
  if (!policy.empty() && planner_registry().entry(asked.name).has_option("checkpoint")) {
    // In front: what stands later counts.
    asked.settings.insert(asked.settings.begin(), {"checkpoint", policy});
  }
  return planner_registry().make(asked, cluster);
}

}  // namespace heterog::cli

// The one table of planners, joined from those of folders that do not know each other.
#include "cli/planner_table.h"

#include <utility>

#include "cli/torch/with_torch.h"

namespace heterog::cli {

const search::Registry& planner_registry() {
  static const search::Registry kRegistry = [] {
    std::vector<search::PlannerEntry> entries = search::builtin_planners();
    for (search::PlannerEntry& entry : learned_planners()) entries.push_back(std::move(entry));
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

// Profiles of all types, then links, then the problem with both.
#include "tune/fitted_costs.h"

#include <algorithm>
#include <utility>

#include "cost/cost_model.h"
#include "measure/run_links.h"
#include "measure/run_profile.h"

namespace heterog::tune {

FittedCosts fit_costs(const cost::Problem& believed, const std::vector<cost::ProfileSource>& given,
                      std::span<const Trial> trials) {
  FittedCosts fitted;
  std::vector<measure::RecordedRun> runs;
  std::vector<cost::MeasuredFlow> flows;
  for (const Trial& trial : trials) {
    runs.push_back({*trial.problem, trial.plan, trial.steps});
    const auto more = measure::measured_flows(trial.plan, trial.steps);
    flows.insert(flows.end(), more.begin(), more.end());
  }
  std::vector<cost::ProfileSource> sources;
  const cluster::Cluster& cluster = *believed.cluster;
  for (const DeviceTypeId type : id_range<DeviceTypeId>(cluster.place_type_count())) {
    cost::Profile profile = measure::profile_of_runs(believed, runs, type);
    if (!profile.finished) continue;
    sources.push_back({profile, profile.device});
    fitted.profiles.push_back(std::move(profile));
  }
  for (const cost::ProfileSource& one : given) {
    const bool measured = std::ranges::any_of(fitted.profiles, [&](const cost::Profile& profile) {
      return profile.device == one.profile.device;
    });
    if (!measured) sources.push_back(one);
  }
  fitted.links = cost::with_unseen_expected(cost::fit_links(cluster, flows));
  fitted.flows = flows.size();

  const cost::CalibratedModel analytic;
  const cost::ProfiledModel model(*believed.graph, sources, analytic);
  auto problem = std::make_shared<cost::Problem>(believed);
  problem->cluster =
      std::make_shared<const cluster::Cluster>(cost::with_fitted_links(cluster, fitted.links));
  problem->costs = cost::analyze(*believed.graph, *problem->cluster, model, believed.batch);
  problem->proportional = cost::proportional_replicas(*problem->cluster, problem->costs);
  fitted.problem = std::move(problem);
  return fitted;
}

}  // namespace heterog::tune

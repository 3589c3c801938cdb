// Makes the problem again.
#include "loading/other_batch.h"

#include "cost/cost_model.h"
#include "cost/link_profile_io.h"
#include "cost/profile_io.h"

namespace heterog::loading {

std::unique_ptr<const cost::Problem> at_batch(const cost::Problem& problem,
                                              const ProblemOptions& options, std::int64_t batch) {
  std::vector<cost::ProfileSource> profiles;
  for (const std::string& path : options.profiles) {
    // The problem's cluster has its links already.
    if (!cost::is_link_profile(path)) profiles.push_back({cost::read_profile(path), path});
  }
  const cost::CalibratedModel analytic;
  const cost::ProfiledModel model(*problem.graph, std::move(profiles), analytic);
  return cost::make_problem(problem.graph, problem.cluster, model, batch,
                            {.max_groups = options.max_groups, .compression = problem.compression});
}

}  // namespace heterog::loading

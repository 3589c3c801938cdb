// The table of planners that need no learning.
#include <array>

#include "planner/baselines.h"
#include "planner/planner.h"
#include "planner/portfolio.h"
#include "planner/random_search.h"

namespace heterog::planner {

std::span<const PlannerEntry> builtin_planners() {
  static const std::array<PlannerEntry, 8> kPlanners = {{
      {"ev-ps", "a replica on every device, parameter servers", true, make_even_ps},
      {"ev-ar", "a replica on every device, all-reduce", true, make_even_all_reduce},
      {"cp-ps", "replicas in proportion to speed, parameter servers", true, make_proportional_ps},
      {"cp-ar", "replicas in proportion to speed, all-reduce", true, make_proportional_all_reduce},
      {"single", "everything on one device, the best one (single:DEVICE for a given one)", true,
       make_single},
      {"horovod", "ev-ar with gradients in buckets of 64 MiB", true, make_horovod},
      {"random", "the best of random strategies", false, make_random_search},
      {"local-search", "changes a few groups and keeps what helps", false, make_local_search},
  }};
  return kPlanners;
}

}  // namespace heterog::planner

#include "search/starts/recomputed.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heterog::search {

std::vector<decide::Strategy> recomputed(const cost::Problem& problem,
                                         const decide::Strategy& strategy) {
  const std::size_t groups = problem.grouping.count();
  const auto root = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(groups))));
  decide::UnitDecision decision = strategy.units[UnitId(0)];
  decision.recompute = true;
  std::vector<decide::Strategy> made;
  for (const std::size_t blocks : {root, std::min(4 * root, groups)}) {
    decide::Strategy one = strategy;
    one.units = IdVector<UnitId, decide::UnitDecision>(blocks, decision);
    one.unit_of_op.resize(problem.graph->op_count());
    for (OpId op : problem.graph->op_ids()) {
      one.unit_of_op[op] = UnitId(problem.grouping.group_of[op].value() * blocks / groups);
    }
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace heterog::search

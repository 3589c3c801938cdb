// SPP's partition along the lines of devices that planners of pipelines try, in a few numbers of
// micro-batches.
#include "learn/formula/pipelines.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace heterog::learn {
namespace {

using search::CutPool;

CutPool pool_of(const cost::Problem& problem, bool again, const std::vector<std::int64_t>& parts) {
  using Options = search::PipelineOptions;
  CutPool pool(problem,
               {.turns = Options::Turns::kPriorities,
                .recompute = again ? Options::Recompute::kAll : Options::Recompute::kNone},
               search::make_chain_of_blocks(problem, search::kMostLayers), parts);
  pool.add(search::promising_lines(problem),
           {2, search::most_stages(problem.cluster->device_count())});
  return pool;
}

}  // namespace

FormulaPipelines formula_pipelines(const cost::Problem& problem) {
  FormulaPipelines found;
  std::vector<std::int64_t> parts;
  for (const std::int64_t one : kPipelineParts) {
    if (one <= problem.batch) parts.push_back(one);
  }
  if (problem.cluster->device_count() < 2 || parts.empty()) return found;
  for (const bool again : {false, true}) {
    const auto pool = std::make_shared<const CutPool>(pool_of(problem, again, parts));
    const search::Chain& chain = pool->of(again).chain;
    const bool ties = search::ties_layers(problem, chain);
    const search::Staging plain{.order_rounds = 1, .tied_together = ties};
    // What layers share is where the first of them is, and stages wait for each other; or it is
    // not.
    search::Staging apart = plain;
    apart.tied_together = false;
    if (search::shares_copies(problem, chain)) apart.copies = search::Copies::kWhereRead;
    const bool shares = ties || apart.copies != plain.copies;
    for (const search::Cut& cut : pool->found) {
      const auto at = static_cast<std::size_t>(
          std::ranges::find(kPipelineParts, pool->micro_batches[cut.costs]) -
          kPipelineParts.begin());
      auto& best = found[at][again];
      auto& other = found[kPipelineParts.size() + at][again];
      if (!best) {
        best = {pool, cut, plain};
        if (shares) other = {pool, cut, apart};
      } else if (!other && cut.stages.size() != best->cut.stages.size()) {
        other = {pool, cut, plain};
      }
    }
  }
  return found;
}

decide::Strategy pipeline_strategy(const cost::Problem& problem, const FormulaPipeline& pipeline,
                                   decide::Pattern pattern) {
  search::Staging how = pipeline.how;
  how.pattern = pattern;
  return pipeline.pool->strategy(problem, pipeline.cut, how);
}

double fullness(const FormulaPipeline& pipeline, bool all_kept) {
  const search::StageCosts& costs =
      pipeline.pool->of(pipeline.cut.recompute).costs[pipeline.cut.costs];
  const std::vector<search::Stage>& stages = pipeline.cut.stages;
  double most = -10;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const search::StageCosts::Group group = costs.group(stages[s].devices);
    const std::int64_t all = pipeline.pool->micro_batches[pipeline.cut.costs];
    const auto in_flight =
        all_kept ? all : std::min(all, static_cast<std::int64_t>(stages.size() - s));
    const double held = costs.held_bytes(stages[s].begin, stages[s].end, group, in_flight);
    most = std::max(most, std::log(std::max(1.0, held) / group.memory));
  }
  return most;
}

}  // namespace heterog::learn

// Pipelines as strategies, and the planners that make them: spp, gpipe, pipedream, hetpipe,
// accumulate.
#pragma once

#include <vector>

#include "search/pipeline/trials.h"
#include "search/registry.h"
#include "search/starts/memory_fill.h"

namespace heterog::search {

// Simulates the cuts that look best, with one forward and one backward pass in turns, and the
// fastest of them in all schedules, as priorities and strictly; all that were simulated, at least
// one whatever the budget, if there are any cuts.
TriedPipelines try_pipelines(BatchEvaluator& evaluator, const PipelineLimits& limits,
                             const PipelineOptions& options = {});
// The same of the cuts of `tried.pool`, which was made of these options.
void try_cuts(BatchEvaluator& evaluator, TriedPipelines& tried, const PipelineLimits& limits,
              const PipelineOptions& options);

// What is done by hand where a batch does not fit: EV-AR and CP-AR in micro-batches, one after the
// other; all that were simulated. In eight first, which takes least memory; in fewer if that fits.
std::vector<Tried> try_accumulation(BatchEvaluator& evaluator);

// Rows of the registry.
std::vector<PlannerEntry> pipeline_entries();

}  // namespace heterog::search

// Pipelines that `plan` simulates: many of a coarse problem, the best of them as they are.
#pragma once

#include "base/rng.h"
#include "search/pipeline/pipelines.h"

namespace heterog::search {

// The same limits for a search of few plans (evaluations_are_few()).
PipelineLimits of_few(PipelineLimits limits);

// try_pipelines() in passes of layers (coarse_problem.h), with several times as much as the limits
// say. With `rng`, the best of these are climbed from. The best of all are then simulated as they
// are, and these alone count as plans. Where there is no coarse problem, or the oracle knows the
// whole problem alone, it is try_pipelines().
TriedPipelines try_pipelines_coarsely(BatchEvaluator& evaluator, const PipelineLimits& limits,
                                      Rng* rng = nullptr, const PipelineOptions& options = {});

}  // namespace heterog::search

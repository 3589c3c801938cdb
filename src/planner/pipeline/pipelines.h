// Pipelines as strategies, and the planners that make them: spp, gpipe, pipedream, hetpipe,
// accumulate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/strategy.h"
#include "planner/pipeline/schedule.h"
#include "planner/pipeline/stages.h"
#include "planner/registry.h"

namespace heterog::planner {

// Every layer on the devices of its stage, each micro-batch shared out by their speed, in the turns
// of the schedule. Gradients of a stage's replicas are all-reduced.
compiler::Strategy pipeline_strategy(const cost::Problem& problem, const Chain& chain,
                                     const StageCosts& costs, std::span<const Stage> stages,
                                     std::int64_t micro_batches, Schedule schedule);

struct PipelineOptions {
  std::int64_t stages = 0;         // 0: whatever is best
  std::int64_t micro_batches = 0;  // 0: whatever is best
  enum class Form : std::uint8_t { kOurs, kPaper } form = Form::kOurs;
};

// How far to go among the candidates, the best by estimate first.
struct PipelineLimits {
  std::size_t count = 24;                    // strategies
  std::size_t tasks = std::size_t{1} << 40;  // that their plans come to, about; the first is free
  double seconds = 1e30;                     // no estimate above this
};

// Pipelines that look best before anything is simulated: each cut in two schedules.
std::vector<compiler::Strategy> promising_pipelines(const cost::Problem& problem,
                                                    const PipelineLimits& limits,
                                                    const PipelineOptions& options = {});

// Rows of the registry.
std::vector<PlannerEntry> pipeline_entries();

}  // namespace heterog::planner

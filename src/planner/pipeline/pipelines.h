// Pipelines as strategies, and the planners that make them: spp, gpipe, pipedream, hetpipe,
// accumulate.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/memory_fill.h"
#include "planner/registry.h"

namespace heterog::planner {

struct PipelineOptions {
  std::int64_t stages = 0;         // 0: whatever is best
  std::int64_t micro_batches = 0;  // 0: whatever is best
  enum class Turns : std::uint8_t { kBest, kPriorities, kStrict } turns = Turns::kBest;
  // Where nothing else fits, nowhere, everywhere.
  enum class Recompute : std::uint8_t { kIfNeeded, kNone, kAll } recompute = Recompute::kIfNeeded;
  enum class Replicas : std::uint8_t { kTogether, kInTurn } replicas = Replicas::kTogether;
  enum class Form : std::uint8_t { kOurs, kPaper } form = Form::kOurs;
};

// How far to go among the candidates, the best by estimate first.
struct PipelineLimits {
  std::size_t count = 24;                    // cuts
  std::size_t tasks = std::size_t{1} << 40;  // that their plans come to, about
  double seconds = 1e30;                     // no estimate above this
};

// Simulates the cuts that look best, with one forward and one backward pass in turns, and the
// fastest of them in all schedules, as priorities and strictly; all that were simulated, at least
// one whatever the budget.
std::vector<Tried> try_pipelines(BatchEvaluator& evaluator, const PipelineLimits& limits,
                                 const PipelineOptions& options = {});

// Rows of the registry.
std::vector<PlannerEntry> pipeline_entries();

}  // namespace heterog::planner

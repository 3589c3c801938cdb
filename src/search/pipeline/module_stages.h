// A plan as engines of pipelines can say it: consecutive modules on one device each, or on as many
// each, micro-batches of one size, passes in the turns of a known schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decide/strategy.h"
#include "search/pipeline/module_chain.h"
#include "search/pipeline/stage_strategy.h"
#include "search/planner.h"

namespace heterog::search {

// Links [begin, end) of a chain of modules on devices. Every stage of a pipeline has as many: its
// replicas, of which the first, second … of one stage sends to that of the next alone.
using ModuleStage = Stage;

struct ModulePipeline {
  std::vector<ModuleStage> stages;
  // Of a micro-batch, what each replica takes in all stages; at least one. Together a micro-batch.
  std::vector<std::int64_t> samples;
  std::int64_t micro_batches = 1;  // a divisor of the batch
  // Or kForwardFirst, or kZeroBubble where Rounding says so.
  decide::Pattern pattern = decide::Pattern::kOneForwardOneBackward;
};

inline std::size_t replicas_of(const ModulePipeline& pipeline) { return pipeline.samples.size(); }

// Samples by weight, largest remainder, but one each at the least; there are as many.
std::vector<std::int64_t> at_least_one_each(const std::vector<double>& weights,
                                            std::int64_t samples);
// What each replica takes of a micro-batch of so many samples, by the speed of its slowest stage;
// nothing if there are fewer samples than replicas.
std::optional<std::vector<std::int64_t>> replica_samples(const StageCosts& costs,
                                                         const std::vector<ModuleStage>& stages,
                                                         std::int64_t micro_batch);

// As such engines take turns: strictly, where the model lets it be (in_line()); each stage makes
// itself what is made of weights alone.
Staging staging(const cost::Problem& problem, const Chain& chain, decide::Pattern pattern);

// The number of micro-batches that is nearest, if all have as many samples; of two, the greater.
std::int64_t nearest_divisor(std::int64_t batch, std::int64_t wanted);

// Whether engines have such turns: PyTorch's Schedule1F1B refuses fewer micro-batches than stages.
bool has_turns(const ModulePipeline& pipeline);

// A pipeline that was simulated.
struct ModulePlan {
  ModulePipeline pipeline;
  decide::Strategy strategy;
  Evaluation evaluation;
};

// `costs` are of this chain, of its links, in the pipeline's number of micro-batches.
decide::Strategy module_strategy(const cost::Problem& problem, const Chain& chain,
                                 const StageCosts& costs, const ModulePipeline& pipeline);

// Each boundary back and forth by so many links, as long as a stage has some left.
std::vector<ModulePipeline> moved_boundaries(const ModulePipeline& pipeline, std::size_t links);

// Links move over the boundaries of stages as long as the step gets shorter (or less memory is
// missing), within the budget. `plan` needs its pipeline alone.
void move_boundaries(BatchEvaluator& evaluator, const ModuleChain& modules, ModulePlan& plan);

// The pipeline whose strategy this is, to the last decision; nothing if it says anything else.
std::optional<ModulePipeline> exact_pipeline(const cost::Problem& problem,
                                             const decide::Strategy& strategy,
                                             const ModuleChain& modules);

}  // namespace heterog::search

// A plan as engines of pipelines can say it: consecutive modules on one device each, micro-batches
// of one size, passes in the turns of a known schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decide/strategy.h"
#include "search/pipeline/module_chain.h"
#include "search/pipeline/stage_strategy.h"
#include "search/planner.h"
#include "space/balance.h"

namespace heterog::search {

using space::Samples;

// Links [begin, end) of a chain of modules on a device.
struct ModuleStage {
  std::size_t begin = 0;
  std::size_t end = 0;
  DeviceId device;
};

struct ModulePipeline {
  std::vector<ModuleStage> stages;
  std::int64_t micro_batches = 1;  // a divisor of the batch
  // Or kForwardFirst, or kZeroBubble where Rounding says so.
  decide::Pattern pattern = decide::Pattern::kOneForwardOneBackward;
};

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

struct RoundedPlan {
  ModulePlan plan;
  std::vector<std::string> changes;  // what the plan says and the pipeline does not, in words
};

struct Rounding {
  // Gradients of parameters that the strategy puts off (kZeroBubble) stay so.
  bool put_off = false;
};

// The strategy itself if it is exactly such a pipeline. If not, what comes nearest: the devices in
// the order in which its forward pass goes through them, each with about as much of the model as it
// has there, after move_boundaries().
//
// Throws an input error where there is nothing to round: no micro-batches, one device, fewer links
// than devices.
RoundedPlan round_to_modules(BatchEvaluator& evaluator, const decide::Strategy& strategy,
                             const ModuleChain& modules, const Rounding& rounding = {});

// The same for plain data parallelism: of the batch, each device's part of the forward pass, by the
// mean time of its ops; largest remainder.
Samples samples_by_work(const cost::Problem& problem, const decide::Strategy& strategy);

}  // namespace heterog::search

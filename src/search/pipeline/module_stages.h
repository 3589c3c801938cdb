// A plan as engines of pipelines can say it: consecutive modules on one device each, micro-batches
// of one size, passes in the turns of a known schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decide/strategy.h"
#include "search/pipeline/module_chain.h"
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
  std::int64_t micro_batches = 1;                                     // a divisor of the batch
  decide::Pattern pattern = decide::Pattern::kOneForwardOneBackward;  // or kForwardFirst
};

struct RoundedPlan {
  ModulePipeline pipeline;
  decide::Strategy strategy;  // the pipeline's
  Evaluation evaluation;
  std::vector<std::string> changes;  // what the plan says and the pipeline does not, in words
};

// What comes nearest to the strategy: the devices in the order in which its forward pass goes
// through them, each with about as much of the model as it has there. Then links move over the
// boundaries of stages as long as the step gets shorter (or less memory is missing).
//
// Throws an input error where there is nothing to round: no micro-batches, one device, fewer links
// than devices.
RoundedPlan round_to_modules(BatchEvaluator& evaluator, const decide::Strategy& strategy,
                             const ModuleChain& modules);

// The same for plain data parallelism: of the batch, each device's part of the forward pass, by the
// mean time of its ops; largest remainder.
Samples samples_by_work(const cost::Problem& problem, const decide::Strategy& strategy);

}  // namespace heterog::search

// What comes nearest to a plan among those that other engines can say.
#pragma once

#include <string>
#include <vector>

#include "search/pipeline/module_stages.h"
#include "space/balance.h"

namespace heterog::search {

using space::Samples;

struct RoundedPlan {
  ModulePlan plan;
  std::vector<std::string> changes;  // what the plan says and the pipeline does not, in words
};

struct Rounding {
  // Gradients of parameters that the strategy puts off (kZeroBubble) stay so.
  bool put_off = false;
  // The engine runs stages of several devices.
  bool replicas = false;
};

// The strategy itself if it is exactly such a pipeline. If not, what comes nearest: its stages, if
// they are of as many devices each and the engine runs such; else the devices, a stage each, in the
// order in which its forward pass goes through them. Each stage has about as much of the model as
// there, after move_boundaries().
//
// Throws an input error where there is nothing to round: no micro-batches, one device, fewer links
// than stages.
RoundedPlan round_to_modules(BatchEvaluator& evaluator, const decide::Strategy& strategy,
                             const ModuleChain& modules, const Rounding& rounding = {});

// The same for plain data parallelism: of the batch, each device's part of the forward pass, by the
// mean time of its ops; largest remainder.
Samples samples_by_work(const cost::Problem& problem, const decide::Strategy& strategy);

}  // namespace heterog::search

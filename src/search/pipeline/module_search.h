// The best pipeline of those that an engine of modules can say.
#pragma once

#include <optional>

#include "search/pipeline/module_stages.h"

namespace heterog::search {

struct ModuleSearch {
  bool replicas = false;  // stages of several devices, too
};

// The cuts of `spp` between links alone, along lines of two to twelve devices, one a stage, in
// micro-batches of one size; the best simulated in one forward, one backward pass and with all
// forward passes first; and the same of stages of two to eight devices each. From the best of
// these, moves of links, devices, samples, micro-batches and turns, as long as the step gets
// shorter: some hundred plans, or as many as a budget pays for. Devices may be left out. Nothing if
// no cut is expected to fit in memory.
//
// Throws an input error where no pipeline is possible: one device, one link, a batch of one sample.
std::optional<ModulePlan> search_modules(BatchEvaluator& evaluator, const ModuleChain& modules,
                                         const ModuleSearch& options = {});

// The chain without boundaries that leave a stage no module of its own (modules_of()); some engines
// need one.
ModuleChain with_modules(const graph::ModelGraph& graph, const ModuleChain& modules);

}  // namespace heterog::search

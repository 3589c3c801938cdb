// The training engines that plans are made for and handed over to, by name.
#pragma once

#include <array>
#include <string_view>

#include "search/pipeline/module_chain.h"
#include "search/planner.h"

namespace heterog::cli {

inline constexpr std::array<std::string_view, 4> kEngines = {"torch-pipelining", "torchtitan",
                                                             "megatron", "ddp"};

// Throws an input error with all that there are, and what to do instead for an engine whose
// training no plan says: `fully_shard`.
void expect_engine(std::string_view option, std::string_view engine);

// Where an engine of pipelines can cut a model. Throws an input error for a model that it does not
// know how to cut.
search::ModuleChain modules_for(std::string_view engine, const graph::ModelGraph& graph);

// The best plan of those that the engine can say, to the last decision. Throws the error of exit
// code 3 if none is expected to fit in memory.
search::PlannerResult plan_for(std::string_view engine, search::BatchEvaluator& evaluator);

}  // namespace heterog::cli

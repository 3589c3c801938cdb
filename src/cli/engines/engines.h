// The training engines that plans are made for and handed over to, by name.
#pragma once

#include <array>
#include <string_view>

#include "search/pipeline/module_chain.h"
#include "search/planner.h"

namespace heterog::cli {

inline constexpr std::array<std::string_view, 5> kEngines = {"torch-pipelining", "torchtitan",
                                                             "megatron", "ddp", "fsdp2"};

// Throws an input error with all that there are.
void expect_engine(std::string_view option, std::string_view engine);

// Where an engine of pipelines can cut a model. Throws an input error for a model that it does not
// know how to cut.
search::ModuleChain modules_for(std::string_view engine, const graph::ModelGraph& graph);

// Whether plans and files for this engine of pipelines have stages of several devices.
bool runs_replicas(std::string_view engine);

// The best plan of those that the engine can say, to the last decision. Throws the error of exit
// code 3 if none is expected to fit in memory, and an input error for a model whose training no
// such plan says. Of fsdp2, the evaluator's oracle is a WithParameterRows
// (search/answers/fsdp2_plan.h).
search::PlannerResult plan_for(std::string_view engine, search::BatchEvaluator& evaluator);

// The error of exit code 3 of a plan for fsdp2 that does not fit with its ranks' rows of the
// parameters.
void expect_fsdp2_fits(const oracle::Evaluation& evaluation);

}  // namespace heterog::cli

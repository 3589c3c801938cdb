// The order of a pipeline's passes in the form that torch.distributed.pipelining loads.
#pragma once

#include <string>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "search/pipeline/module_stages.h"
#include "sim/simulator.h"

namespace heterog::cli {

// A row for each rank, an action for each cell, in the order in which the rank runs them: "1F0" is
// stage 1's forward pass of micro-batch 0, B a backward pass; of Pattern::kZeroBubble, I is the
// part of it that the stage before waits for and W makes the gradients of parameters. Nothing is
// sent in there: PyTorch adds that.
//
// A stage's W, oldest first, stand where the stage would wait for at least half as long as one
// takes, by mean times of its passes in the simulated step. `strategy` and `simulated` are of the
// pipeline.
std::string schedule_csv(const cost::Problem& problem, const search::ModulePipeline& pipeline,
                         const decide::Strategy& strategy, const sim::Simulated& simulated);

}  // namespace heterog::cli

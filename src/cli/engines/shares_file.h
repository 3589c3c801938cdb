// The file of shares, format heterog-shares (docs/formats.md), as `shares` and `hand-over` write
// it.
#pragma once

#include <string>

#include "cli/output.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "search/answers/shares.h"
#include "sim/simulator.h"

namespace heterog::cli {

// Of data parallelism with these samples of each micro-batch on each device; a device without any
// has no rank. `batch` is a micro-batch then, and the predicted step has all of them. Nothing in it
// depends on the clock.
OrderedJson shares_file_json(const cost::Problem& problem, const std::string& planner,
                             const search::Samples& samples, const decide::Strategy& strategy,
                             const sim::Simulated& simulated);

// A line for a person; nothing of a batch that is taken as a whole.
std::string micro_batches_text(std::int64_t micro_batches);

}  // namespace heterog::cli

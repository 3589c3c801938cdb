// The same plan for another number of samples (the last batch of an epoch, say), or for samples of
// another length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::compiler {

// The problem with another batch. Costs and groups stay those of the batch that it was made for:
// they are for planning, and this one is to be run. Throws an input error on a batch that is too
// small or too large for any graph.
std::shared_ptr<const cost::Problem> at_batch(const cost::Problem& problem, std::int64_t batch);

// The problem with a graph of the same step on inputs of other sizes: sentences of another length,
// images of another width. Throws an input error that begins with `source` where the graphs differ
// in anything else, or a slice of the one is not a slice of the other.
std::shared_ptr<const cost::Problem> with_graph(const cost::Problem& problem,
                                                std::shared_ptr<const graph::ModelGraph> graph,
                                                const std::string& source);

// Decision 15. `plan` cut anew for `other`, which is made of its problem by the functions above.
// Tasks, devices, their order, who takes part in what and where everything lives stay; what changes
// is samples, the weights that follow from them, counts of rows, and bytes of buffers and of what
// moves. Durations, ranks and static memory are those of the plan's own batch.
//
// All boundaries of slices go through one monotone map, in proportion, so that what met still
// meets. Every slice keeps a sample where the batch has enough (least_full_batch); where it has
// not, some are empty, though never one that begins with the first sample: what happens once, on
// the first slice of an op, happens there. What an empty slice makes has no samples, and adds
// nothing to a sum (runtime/program/body.h).
//
// Throws an input error where an op would have an empty slice, makes something that is the same on
// all slices beside what it makes of samples, and somebody else reads that from there.
Plan rescaled(const cost::Problem& other, const Plan& plan);

// The smallest batch at which no slice of the plan is empty.
std::int64_t least_full_batch(const Plan& plan);

}  // namespace heterog::compiler

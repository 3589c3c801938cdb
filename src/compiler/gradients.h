// Aggregation of the gradients of replicated parameters, and what follows the update.
#pragma once

#include "compiler/compilation.h"
#include "compiler/layout.h"
#include "compiler/movement.h"
#include "compiler/strategy.h"

namespace heterog::compiler {

// After all forward and backward ops: pushes and sums at parameter servers, all-reduces (buckets of
// up to `bucket_bytes`) among replicas (decisions 4 to 6). Gradients of embeddings travel as rows,
// each alone, where that moves fewer bytes.
void aggregate_gradients(const cost::Problem& problem, const Layout& layout, Bytes bucket_bytes,
                         PlanBuilder& builder, Movement& movement, SectionRunner& sections);

// After all update ops: parameter servers send the new parameters to the other replicas.
void pull_parameters(const cost::Problem& problem, const Layout& layout, Movement& movement,
                     SectionRunner& sections);

// Running statistics of replicated ops are share-weighted means: one collective a device set, for
// all of them together, at the end of the step.
void average_buffers(const cost::Problem& problem, const Layout& layout, PlanBuilder& builder,
                     Movement& movement);

// After that: what stays between steps, other than parameters, is read wherever it is needed; a
// device that reads it and has no part in making its next value is sent that.
void pull_buffers(const cost::Problem& problem, Movement& movement);

}  // namespace heterog::compiler

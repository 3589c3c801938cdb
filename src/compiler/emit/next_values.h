// After the updates, the next values of parameters and state travel to every device that has the
// old ones.
#pragma once

#include "compiler/emit/emission.h"

namespace heterog::compiler {

// After all update ops: parameter servers send the new parameters to the other replicas.
void pull_parameters(Emission& e);

// Running statistics of replicated ops are share-weighted means: one collective per set of slices,
// for all of them together, at the end of the step.
void average_buffers(Emission& e);

// After that: what stays between steps, other than parameters, is read wherever it is needed; a
// device that reads it and has no part in making its next value is sent that.
void pull_buffers(Emission& e);

}  // namespace heterog::compiler

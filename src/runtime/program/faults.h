// Breaks a job on purpose.
#pragma once

#include <cstdint>

#include "compiler/plan.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// What a runtime could get wrong, to see that verification finds it.
enum class Fault : std::uint8_t {
  kDropContribution,  // one replica's part of one gradient is left out
  kEqualWeights,      // gradients of unequal slices count alike, as a mean over replicas does it
  kSkipPull,          // one replica keeps an old parameter
};
// Throws an input error if the job has nothing of the kind.
void inject(Job& job, const compiler::Plan& plan, Fault fault);

}  // namespace heterog::runtime

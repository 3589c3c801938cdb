// Terms that all ranks of a job must agree on before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "launch/terms.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

struct TermsOptions {
  std::uint64_t seed = 0;
  bool any_device = false;          // ranks may be other devices than the plan's
  std::string transport;            // by what tensors travel
  std::vector<std::string> others;  // whatever else steps depend on, in words
};

// The hash is of what every rank does in a step, instruction by instruction, so it also tells apart
// ranks whose files are alike but were compiled to other plans. `peak_bytes`: of each device, as
// predicted.
launch::JobTerms terms_of(const Job& job, const IdVector<DeviceId, Bytes>& peak_bytes,
                          const TermsOptions& options);

}  // namespace heterog::runtime

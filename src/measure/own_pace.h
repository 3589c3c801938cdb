// What computation takes when nothing slows it.
#pragma once

#include <vector>

#include "runtime/ranks/records.h"

namespace heterog::measure {

// The same steps, in which what holds a compute stream ends as early as it would have if its device
// had taken part in nothing meanwhile: beside collectives and transfers that slow it by Plan::drag
// it got on by 1000 / (1000 + drag) of the time. Costs of operators are those of an undisturbed
// device; a prediction adds what goes on beside them again (docs/costs.md).
std::vector<runtime::MeasuredStep> at_own_pace(const compiler::Plan& plan,
                                               std::vector<runtime::MeasuredStep> steps);

}  // namespace heterog::measure

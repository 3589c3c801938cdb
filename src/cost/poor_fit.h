// Poor fits of a profile, which say that the machine was busy with something else.
#pragma once

#include <string>

#include "cost/profile.h"

namespace heterog::cost {

// Below this a fit says nothing of the device: it was busy with something else while it was
// measured.
inline constexpr double kLeastFit = 0.5;

// The fits that are worse than that, in one line; empty if nothing is. R² of the links; and of the
// operators, where a line over sizes that take equally long has no R² to speak of, 1 − the median
// of the relative errors and 1 − that of a whole step. Operators of a run are not asked
// (Between::kModel): they need no line.
std::string poor_fit(const Profile& profile);

}  // namespace heterog::cost

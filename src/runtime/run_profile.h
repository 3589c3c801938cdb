// What a run measured of the operators, as a profile that planning reads.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.h"
#include "runtime/measurement.h"

namespace heterog::runtime {

// Of one type of device: medians over the steps and the devices of the type. An op that none of
// them ran is given what it was thought to cost times the drift of all that they ran; an update is
// shared out among its ops as it was predicted. Nothing if no device of the type ran anything.
cost::Profile profile_of_run(const Job& job, const compiler::Plan& plan,
                             const std::vector<MeasuredStep>& steps, DeviceTypeId type);

}  // namespace heterog::runtime

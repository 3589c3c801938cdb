// Profile of a run: what it measured of the operators, as planning reads it.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.h"
#include "runtime/ranks/records.h"

namespace heterog::measure {

// The profile of one type of device: medians over the steps and the devices of the type, of what
// operators take at their own pace (own_pace.h). An op that
// none of them ran is given what it was thought to cost times the drift of all that they ran; an
// update is shared out among its ops as it was predicted. Nothing if no device of the type ran
// anything.
cost::Profile profile_of_run(const runtime::Job& job, const compiler::Plan& plan,
                             const std::vector<runtime::MeasuredStep>& steps, DeviceTypeId type);

}  // namespace heterog::measure

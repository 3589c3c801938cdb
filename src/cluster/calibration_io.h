// Reads the calibrations of configs/devices.json.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/calibration.h"

namespace heterog {
class JsonValue;
}

namespace heterog::cluster {

using CalibrationSet = std::map<std::string, Calibration, std::less<>>;

// A list of {"name", "source", one entry a kind of kernel}; an entry is an object of constants or
// the name of an earlier calibration whose constants it takes, or of one of `known`, which are
// returned too; one of the list replaces its namesake there.
CalibrationSet read_calibrations(const std::vector<JsonValue>& list, CalibrationSet known = {});

// {"matmul": 0.9, "convolution_tf32": 0.8, "traffic": 0.95}; what is absent is 1, and TF32 as half
// precision where it alone is absent.
Sustained read_sustained(const JsonValue& value);

}  // namespace heterog::cluster

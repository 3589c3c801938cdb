// Times operators: a robust median after a warm-up.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <span>

#include "base/median.h"

namespace heterog::measure {

// Seconds of one call, median and spread of up to `repeat` samples, each of as many calls as it
// takes to be well above the resolution of the clock. The calls take turns, so that operands are
// not found in a cache which a step would have filled with other tensors. By the steady clock on a
// CPU, by events of the device's stream elsewhere.
Robust time_calls(std::span<const std::function<void()>> calls, at::Device device, int repeat);

}  // namespace heterog::measure

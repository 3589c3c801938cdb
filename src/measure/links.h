// Measures how long bytes take from one process of this machine to another.
#pragma once

#include <vector>

#include "cost/profile.h"

namespace heterog::measure {

// TCP over the loopback device, by which ranks of one machine talk: half of the time that a message
// takes there and back, the median of `repeat` after a warm-up. Forks: call it before any thread is
// started. Throws an error of a failed run if the system refuses.
cost::ProfiledLink measure_loopback(int repeat);

}  // namespace heterog::measure

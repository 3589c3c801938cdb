// Devices by number, in few letters.
#pragma once

#include <cstddef>

#include "base/ids.h"

namespace heterog::compiler {

inline DeviceId d(std::size_t i) { return DeviceId(i); }

}  // namespace heterog::compiler

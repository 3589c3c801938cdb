// Times, sizes and gains in words, each with its unit.
#pragma once

#include <string>

#include "base/units.h"

namespace heterog::explain {

std::string milliseconds_text(double seconds);  // "412.3 ms"
std::string bytes_text(Bytes bytes);            // "125.2 MB", decimal, in the unit that fits
std::string gigabytes_text(Bytes bytes);        // "10.52 GB", decimal
// (base − time) / time, as HeteroG §6.2: "+35.7 %".
std::string speedup_text(double base, double time);

}  // namespace heterog::explain

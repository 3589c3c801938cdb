// Traffic between the ranks of a job in a step.
#pragma once

#include "comm/device_sets.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

comm::Traffic traffic_of(const Job& job);

}  // namespace heterog::runtime

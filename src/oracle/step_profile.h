// What each group and each device does in a simulated step, in parts of the step.
#pragma once

#include "compiler/plan.h"
#include "graph/grouping.h"
#include "sim/simulator.h"

namespace heterog::oracle {

// All in parts of the step: without a unit, and alike for steps of any length.
struct GroupProfile {
  // How long the group's tasks compute, on the device where that is longest.
  double busy = 0;
  // By how much the task that can wait least could end later without making the step longer
  // (sim/slack.h). 0: the group is on a critical path; 1: it has no task.
  double slack = 1;
  // How long something of the group is on its way to a device that computes nothing meanwhile, on
  // the device where that is longest. In a collective all that take part wait.
  double exposed = 0;
};
struct DeviceProfile {
  double busy = 0;    // how long it computes
  double memory = 0;  // the most that it holds, in parts of its memory; above 1 does not fit
};

struct StepProfile {
  IdVector<GroupId, GroupProfile> groups;
  IdVector<DeviceId, DeviceProfile> devices;  // hosts that serve behind them
};

// Of a plan of the graph that `grouping` is of, and of its simulation with the timeline. A task
// counts for the group of its op: transfers, sums and collectives for that of what they move.
StepProfile profile_step(const compiler::Plan& plan, const sim::SimResult& result,
                         const graph::Grouping& grouping);

}  // namespace heterog::oracle

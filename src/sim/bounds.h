// What no schedule can beat: of a plan, and of every plan of a problem.
#pragma once

#include "compiler/plan.h"
#include "cost/problem.h"

namespace heterog::sim {

struct Bounds {
  // Of this plan, in whatever order its tasks run.
  Nanoseconds chain = 0;   // its longest chain of tasks
  Nanoseconds stream = 0;  // work of its busiest device
  Nanoseconds link = 0;    // bytes over bandwidth of its busiest link
  // Of any plan for the same graph, batch and cluster.
  Nanoseconds fastest_chain = 0;  // the graph's longest chain, every operator on the fastest device
                                  // with an even share of the batch, and nothing to move
  Nanoseconds total_speed = 0;    // all work, shared by all devices without loss
  Nanoseconds of_plan() const;
  Nanoseconds of_any() const;
};
Bounds bounds(const cost::Problem& problem, const compiler::Plan& plan);

}  // namespace heterog::sim

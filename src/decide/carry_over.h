// A plan for other devices or another batch than it was made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cost/problem.h"
#include "decide/plan_io.h"
#include "decide/strategy.h"

namespace heterog::decide {

// Which device of the cluster stands for each of the plan's, and what could not be matched.
struct DeviceMatch {
  IdVector<DeviceId, DeviceId> of;  // by the plan's number
  IdVector<DeviceId, bool> gone;    // whether that is another one, which takes over its work
  std::vector<DeviceId> added;      // of the cluster, that stand for none
  // Of each of these, a device of the same type that stands for one, if possible of the same
  // machine; invalid if there is none.
  std::vector<DeviceId> twins;
};

// In this order, each device of the cluster once:
//   1. the same name and type;
//   2. the same machine and type, in the order of the cluster: devices behind one that has left
//      move up, and so do their names;
//   3. the same name: a device that has become another type, as one that is slower;
//   4. the same type, wherever: a machine that is new for one that is gone, as where it has another
//      name; then any.
// What is left of the plan's devices is gone. Its work goes to the nearest that is left: of the
// same machine and type, else of the machine, else of the type, else any; of equals the one that
// takes over least, then the first. Throws an input error (prefixed by `source`) if all are gone.
DeviceMatch match_devices(const std::vector<PlannedDevice>& planned,
                          const cluster::Cluster& cluster, std::string_view source);

// "a/gpu0 is b/gpu0 now; a/gpu1 is gone, b/gpu0 is the nearest left", one line; empty if all
// devices are where they were.
std::string gone_text(const OtherPlan& plan, const cluster::Cluster& cluster,
                      const DeviceMatch& match);

// Who computes the samples of a device that is gone.
enum class TakenOver : std::uint8_t {
  kByNearest,  // the device that stands for it
  kByOthers,   // all that share a unit with it, in proportion; the nearest if there is no other
};

struct CarryOver {
  TakenOver taken_over = TakenOver::kByNearest;
  // A device that is new has a replica of its own, of the same weight, of all that its twin has.
  bool twins_join = false;
  // How many times as much each device of the cluster is to take as what it stands for took; empty:
  // as much.
  IdVector<DeviceId, double> times_as_much = {};
};

// The plan's strategy for this problem: sets of devices with their weights (those of devices that
// have become one are added up), methods, servers that still hold their parameter (others are
// chosen by the compiler), rows, recomputation, micro-batches (as many as the batch has samples, at
// most) with their turns, pipelines. A unit that the problem groups otherwise decides as most of
// the computation of its operators did. Priorities of single ops are of the old slices and stay
// behind: the order is then `rank`. Weights are in proportion, so another batch is dealt alike.
//
// Throws an input error (prefixed by `source`) where the file does not say what its groups were.
Strategy carry_over(const OtherPlan& plan, const DeviceMatch& match, const cost::Problem& problem,
                    const CarryOver& how, std::string_view source);

}  // namespace heterog::decide

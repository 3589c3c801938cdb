// The same plan on fewer devices: whether those that it has little use for are worth having.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "search/planner.h"

namespace heterog::search {

// The part of the step's work that each device does: samples of ops, weighted with the op's mean
// time over the devices. Adds up to 1.
IdVector<DeviceId, double> work_shares(const cost::Problem& problem,
                                       const decide::Strategy& strategy);

// The strategy of a batch as a whole without these devices: others that share a group with them
// take over their samples, in proportion; a group that they have alone goes to the devices of the
// group before it (the next one, if there is none). Empty if nobody would be left.
std::optional<decide::Strategy> without_devices(const cost::Problem& problem,
                                                const decide::Strategy& strategy,
                                                std::span<const DeviceId> devices);

struct FewerDevices {
  std::vector<DeviceId> left_out;  // that the strategy it comes from uses, ascending
  decide::Strategy strategy;
  Evaluation evaluation;
};

struct LeaveOutOptions {
  double tolerance = 0;   // the step may be longer by this part of itself
  std::int64_t most = 0;  // strategies to evaluate
};

// How many tries are worth their time on a problem of this size: at most 16.
std::int64_t affordable_tries(const cost::Problem& problem);

// Tries to do without devices: those that do less than a tenth of an equal share, all and one by
// one; those of a machine, of a type; single ones, those that do least first. Of the tries that fit
// and whose step is no longer than `evaluation`'s (but for the tolerance), the one that leaves most
// devices out; of these, the fastest. Empty if there is none, or nothing fits. `strategy` must be
// plain. Deterministic.
std::optional<FewerDevices> leave_out(BatchEvaluator& evaluator, const decide::Strategy& strategy,
                                      const Evaluation& evaluation, const LeaveOutOptions& options);

}  // namespace heterog::search

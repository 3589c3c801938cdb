// What a plan is beside: the best plain data parallelism over all devices, the best device alone,
// and itself on fewer devices.
#pragma once

#include <optional>

#include "oracle/batch_evaluator.h"
#include "search/answers/leave_out.h"
#include "search/starts/baselines.h"

namespace heterog::search {

// The best of data parallelism in one order, then that one in the others.
std::optional<NamedStrategy> best_together(oracle::Oracle& oracle);

// The best device alone.
struct SingleDevice {
  DeviceId device;
  Evaluation evaluation;
};
SingleDevice best_single(BatchEvaluator& evaluator);

// Fewer devices for the decisions of `strategy` that take no longer than `evaluation`, its own, or
// at most a hundredth longer. A strategy with an improved order is compared once theirs is improved
// as well. Empty where there are none, and for stages and micro-batches, which are no decisions
// that devices can be taken out of.
std::optional<FewerDevices> enough_devices(BatchEvaluator& evaluator,
                                           const decide::Strategy& strategy,
                                           const Evaluation& evaluation);

}  // namespace heterog::search

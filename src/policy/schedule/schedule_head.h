// Which schedule the network expects of a case: one categorical a decision.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "policy/schedule/schedule.h"

namespace heterog::policy {

// Linear in what the groups and the devices are like on average. Its weights begin at zero, and
// their making draws from nobody's random numbers after it: it is made last.
class ScheduleHeadImpl : public torch::nn::Module {
 public:
  ScheduleHeadImpl(std::int64_t group_width, std::int64_t device_features);
  // [N, group width], [M, device features] → scores of all options, numbered through [kAllOptions]
  torch::Tensor forward(const torch::Tensor& groups, const torch::Tensor& devices);

 private:
  torch::nn::Linear score_;
};
TORCH_MODULE(ScheduleHead);

// Logits of a case's options: the scores, more for what the case would take without a head, so that
// a head of zeros begins there, and −1e9 for what it does not allow.  [kAllOptions]
torch::Tensor schedule_logits(const torch::Tensor& scores, const ScheduleSpace& space);

// All of what follows takes such logits. Draw s depends on (rng, s) alone.
std::vector<ScheduleDraw> draw_schedules(const torch::Tensor& logits, std::int64_t samples,
                                         const Rng& rng);
// `incumbent` with another option for one of its decisions, each that has another as likely as the
// next. The option is drawn as the network finds it likely beside the others but the incumbent's:
// so neighbours are tried as long as something is learnt, however settled the head is. `incumbent`
// itself, with nothing drawn, where there is no other.
ScheduleDraw redraw(const torch::Tensor& logits, const Schedule& incumbent, Rng rng);
Schedule most_likely_schedule(const torch::Tensor& logits);

// log π of what was drawn of each: the sum over its decisions.  [S]
torch::Tensor schedule_log_likelihood(const torch::Tensor& logits,
                                      std::span<const ScheduleDraw> draws);
// Nats a decision, of those that have more than one option.  scalar
torch::Tensor schedule_entropy(const torch::Tensor& logits);

}  // namespace heterog::policy

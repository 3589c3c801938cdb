// Profiles become rows of numbers; each group is also told what its own devices do.
#include "policy/feedback/incumbent.h"

#include <torch/torch.h>

#include <algorithm>

#include "oracle/evaluator.h"

namespace heterog::policy {
namespace {

float cut(double amount) { return static_cast<float>(std::min(amount, 4.0)); }

}  // namespace

Profile simulated_profile() {
  return [](const Case& c, const compiler::Strategy& strategy) {
    return oracle::Evaluator(*c.problem).profile(strategy, c.problem->grouping);
  };
}

IncumbentFeatures to_incumbent(const oracle::StepProfile& profile, const Case& c,
                               const Actions& actions) {
  const auto groups = static_cast<std::int64_t>(profile.groups.size());
  const auto devices = static_cast<std::int64_t>(c.problem->cluster->device_count());
  IncumbentFeatures incumbent{.groups = torch::zeros({groups, kGroupFeedback}),
                              .devices = torch::zeros({devices, kDeviceFeedback}),
                              .taken = to_tensor({actions})[0]};
  auto of_device = incumbent.devices.accessor<float, 2>();
  for (std::int64_t d = 0; d < devices; ++d) {
    const auto& device = profile.devices[DeviceId(static_cast<std::size_t>(d))];
    of_device[d][0] = cut(device.busy);
    of_device[d][1] = cut(device.memory);
  }
  auto of_group = incumbent.groups.accessor<float, 2>();
  for (std::int64_t n = 0; n < groups; ++n) {
    const auto& group = profile.groups[GroupId(static_cast<std::size_t>(n))];
    of_group[n][0] = 1;  // something is known
    of_group[n][1] = cut(group.busy);
    of_group[n][2] = cut(group.slack);
    of_group[n][3] = cut(group.exposed);
  }
  incumbent.groups.narrow(1, 4, kDeviceFeedback)
      .copy_(c.features.members.index_select(0, incumbent.taken).matmul(incumbent.devices));
  return incumbent;
}

const IncumbentFeatures& see(SeenIncumbent& kept, const Case& c, const Choice& choice,
                             const Profile& profile) {
  if (kept.choice == choice) return kept.seen;
  const auto said = profile(c, standalone_strategy(c, choice));
  kept = {choice, said ? to_incumbent(*said, c, choice.actions) : IncumbentFeatures{}};
  return kept.seen;
}

}  // namespace heterog::policy

// What the simulator says of a case's best strategy so far, as the network reads it.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>

#include "oracle/step_profile.h"
#include "policy/action_head.h"
#include "policy/case.h"

namespace heterog::policy {

// Asks an oracle what a strategy of a case does in its step, by the case's groups; nothing where
// the oracle does not know.
using Profile = std::function<std::optional<oracle::StepProfile>(
    const Case& c, const compiler::Strategy& strategy)>;
Profile simulated_profile();

// As tensors. All amounts are cut at 4, which only memory can come to.
IncumbentFeatures to_incumbent(const oracle::StepProfile& profile, const Case& c,
                               const Actions& actions);

// The incumbent of a case, and what it was made from.
struct SeenIncumbent {
  Choice choice;
  IncumbentFeatures seen;
};
// `kept`, asked for anew if it is another one: one simulation. Depends on case and choice alone.
const IncumbentFeatures& see(SeenIncumbent& kept, const Case& c, const Choice& choice,
                             const Profile& profile);

}  // namespace heterog::policy

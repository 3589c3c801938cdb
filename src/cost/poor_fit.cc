// Looks at links, at single operators and at their sum.
#include "cost/poor_fit.h"

#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "base/text.h"

namespace heterog::cost {

std::string poor_fit(const Profile& profile) {
  std::vector<std::string> poor;
  for (const ProfiledLink& link : profile.links) {
    if (link.r2 < kLeastFit) {
      poor.push_back(fmt::format("{}: R2 is {:.2f}", printable(link.between), link.r2));
    }
  }
  // Costs of a run do not follow lines, and slices that ran in different rounds have none.
  const FitError fit = profile.between == Between::kLine ? fit_error(profile) : FitError();
  if (fit.median > 1 - kLeastFit) {
    poor.push_back(fmt::format("half of the operators are off by {:.0f} % or more from their lines",
                               100 * fit.median));
  }
  if (std::abs(fit.total) > 1 - kLeastFit) {
    poor.push_back(fmt::format("a whole step is off by {:+.1f} % from the lines of its operators",
                               100 * fit.total));
  }
  return fmt::format("{}", fmt::join(poor, "; "));
}

}  // namespace heterog::cost

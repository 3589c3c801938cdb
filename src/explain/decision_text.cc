// Writes decisions by what they come to: devices, samples, aggregation.
#include "explain/decision_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "decide/micro_batches.h"

namespace heterog::explain {

const decide::UnitDecision& decision_of(const cost::Problem& problem,
                                        const decide::Strategy& strategy, OpId op) {
  return strategy.units[decide::unit_of(problem, strategy, op)];
}

std::string decision_text(const cost::Problem& problem, const decide::Strategy& strategy,
                          const decide::UnitDecision& decision) {
  const auto instances = decide::slices_of(strategy, decision, problem.batch);
  const auto slices = decide::merge_by_device(instances);
  std::string repeated =
      instances.size() > slices.size() ? fmt::format(", in {} instances", instances.size()) : "";
  if (decision.recompute) repeated += ", forward ops again for the backward pass";
  const auto name = [&](const decide::Slice& slice) {
    return problem.cluster->device(slice.device).name;
  };
  if (slices.size() == 1) return name(slices.front()) + repeated;
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;
  for (const decide::Slice& slice : slices) {
    names.push_back(name(slice));
    sizes.push_back(slice.size());
  }
  const bool everywhere = slices.size() == problem.cluster->device_count();
  const bool equal = *std::max_element(sizes.begin(), sizes.end()) -
                         *std::min_element(sizes.begin(), sizes.end()) <=
                     1;
  constexpr std::size_t kNamed = 4;
  const std::string devices = everywhere ? "all devices"
                              : slices.size() <= kNamed
                                  ? fmt::format("{}", fmt::join(names, " + "))
                                  : fmt::format("{} devices from {}", slices.size(), names.front());
  constexpr std::size_t kSized = 16;
  if (sizes.size() > kSized) sizes.resize(kSized);
  const std::string shares =
      equal ? "equally"
            : fmt::format("{}{}", fmt::join(sizes, ":"), slices.size() > kSized ? ":…" : "");
  return fmt::format("{} {}, {}{}", devices, shares, decide::sync_method_name(decision.sync),
                     repeated);
}

std::string home_text(const cost::Problem& problem, const decide::ParameterHome& home) {
  if (home.replicas.size() == 1) {
    return "on " + problem.cluster->device(home.replicas.front()).name;
  }
  if (home.server.valid()) {
    return fmt::format("ps at {} for {} devices", problem.cluster->device(home.server).name,
                       home.device_count());
  }
  if (home.partitioned()) {
    std::size_t servers = 0;
    for (std::size_t i = 0; i < home.replicas.size(); ++i) servers += home.rows_of(i) > 0 ? 1 : 0;
    return fmt::format("ps by rows at {} places for {} devices", servers, home.device_count());
  }
  return fmt::format("{} over {} devices{}",
                     home.sharded()    ? "sharded"
                     : home.gathered() ? "gathered"
                                       : "all-reduce",
                     home.device_count(), home.group > 0 ? ", in a named group" : "");
}

}  // namespace heterog::explain

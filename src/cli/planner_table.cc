// Joins the registries of folders that do not know each other.
#include "cli/planner_table.h"

#include <fmt/ranges.h>

#include <optional>

#include "base/log.h"
#include "base/nearest.h"
#include "base/text.h"
#include "planner/baselines.h"
#include "policy/api.h"

namespace heterog::cli {

namespace {

class Portfolio final : public planner::Planner {
 public:
  planner::PlannerResult plan(planner::PlannerContext& context) const override {
    return plan_with_policy(context).best;
  }
};

std::unique_ptr<const planner::Planner> make_portfolio() { return std::make_unique<Portfolio>(); }

std::optional<std::string> shipped_policy() {
  try {
    return policy::shipped_policy_path();
  } catch (const Error& error) {
    spdlog::warn("planning without a policy: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace

const std::vector<planner::PlannerEntry>& all_planners() {
  static const std::vector<planner::PlannerEntry> kAll = [] {
    const auto builtin = planner::builtin_planners();
    std::vector<planner::PlannerEntry> all(builtin.begin(), builtin.end());
    all.push_back(policy::policy_planner());
    all.push_back({kPortfolio, "the best of baselines, policy, shares by memory and local search",
                   false, make_portfolio});
    return all;
  }();
  return kAll;
}

std::unique_ptr<const planner::Planner> find_planner(const std::string& name,
                                                     const cluster::Cluster& cluster) {
  constexpr std::string_view kSingle = "single:";
  if (name.starts_with(kSingle)) {
    const std::string wanted = name.substr(kSingle.size());
    std::vector<std::string> known;
    for (DeviceId device : cluster.device_ids()) {
      known.push_back(cluster.device(device).name);
      if (known.back() == wanted) return planner::make_single_on(device);
    }
    fail_input("--planner {}: the cluster has no such device{}; it has {}", printable(name),
               did_you_mean(wanted, known), fmt::join(known, ", "));
  }
  std::vector<std::string> known;
  for (const planner::PlannerEntry& entry : all_planners()) {
    if (entry.name == name) return entry.make();
    known.emplace_back(entry.name);
  }
  fail_input("--planner {}: no such planner{}; there are {}", printable(name),
             did_you_mean(name, known), fmt::join(known, ", "));
}

planner::Proposer policy_proposer(const std::string& path, const cost::Problem& problem, Rng rng) {
  std::optional<std::string> file = path;
  if (path.empty()) file = shipped_policy();
  if (!file) return {};
  spdlog::info("{}: the policy that proposes", printable(*file, 400));
  return [policy = policy::Policy::load(*file), &problem, rng, calls = 0](int count) mutable {
    return policy::propose(policy, problem, count - 1, rng.split(calls++));
  };
}

planner::PortfolioResult plan_with_policy(planner::PlannerContext& context) {
  // A stream of its own: the search draws the same numbers with and without a policy.
  constexpr std::uint64_t kPolicyStream = 0x706f6c;
  return planner::best_plan(context, policy_proposer(context.policy_path, context.problem,
                                                     context.rng.split(kPolicyStream)));
}

}  // namespace heterog::cli

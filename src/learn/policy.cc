// A trained policy: loading, saving, and one-shot proposals.
#include <torch/torch.h>

#include <filesystem>

#include "base/log.h"
#include "base/own_file.h"
#include "base/stopwatch.h"
#include "learn/api.h"
#include "learn/checkpoint_io.h"
#include "learn/network/network_copy.h"
#include "learn/policy_impl.h"
#include "learn/reinforce/case.h"
#include "search/starts/starts.h"

namespace heterog::learn {
Policy make_policy(const TrainConfig& config, const PolicyNetwork& network) {
  return Policy(std::make_shared<const Policy::Impl>(Policy::Impl{config, network}));
}

PolicyNetwork clone(const PolicyNetwork& network, const TrainConfig& config) {
  PolicyNetwork copy = make_network(config, /*seed=*/0);
  copy_weights(network, copy);
  return copy;
}

Policy Policy::load(const std::string& path) {
  LoadedPolicy loaded = load_policy(path);
  return make_policy(loaded.config, loaded.network);
}

void Policy::save(const std::string& path) const {
  save_policy(impl_->network, impl_->config, path);
}

const TrainConfig& Policy::config() const { return impl_->config; }

std::vector<decide::Strategy> propose(const Policy& policy, oracle::BatchEvaluator& evaluator,
                                      int samples, const Rng& rng) {
  std::vector<decide::Strategy> strategies;
  for (Proposal& one : propose_with_needs(policy, evaluator, samples, rng)) {
    strategies.push_back(std::move(one.strategy));
  }
  return strategies;
}

std::vector<Proposal> propose_with_needs(const Policy& policy, oracle::BatchEvaluator& evaluator,
                                         int samples, const Rng& rng) {
  use_one_network_thread();
  torch::NoGradGuard no_grad;
  const auto max_groups = static_cast<int>(policy.config().max_groups);
  const bool formula = begins_as_formula(policy.config());
  const bool costly = formula || search::evaluations_are_costly(evaluator.problem());
  const Stopwatch watch;
  const Case c =
      make_case("", regrouped(evaluator.problem(), max_groups),
                costly ? decide::OrderPolicy::kRankQueued : find_order(evaluator), policy.config());
  const double seen = watch.seconds();
  const Said said = say(policy.impl().network, c.features);
  const double said_after = watch.seconds();
  std::vector<Actions> proposed = likely_strategies(c, said, static_cast<std::size_t>(samples) + 1);
  if (!formula) {
    for (Actions& drawn : sample_actions(said.log_probabilities, samples, rng)) {
      proposed.push_back(std::move(drawn));
    }
  }
  std::vector<Proposal> proposals;
  for (const Actions& actions : proposed) {
    proposals.push_back({standalone_strategy(c, actions), memory_need(c, actions)});
  }
  logger().debug(
      "policy: {:.3f} s for features and the formula, {:.3f} s for a pass of the "
      "network, {:.3f} s for {} proposals",
      seen, said_after - seen, watch.seconds() - said_after, proposals.size());
  return proposals;
}

std::string shipped_policy_path() {
  const std::string name = "models/policies/zoo-small.ckpt";
  const std::string here = (std::filesystem::current_path() / ".").string();
  for (const std::string& start : {own_file(), here}) {
    const std::string found = nearest_above(start, name);
    if (!found.empty()) return found;
  }
  fail_input(
      "{}: not found above the program or the working folder; name a policy, or make this "
      "one with scripts/pretrain.sh",
      name);
}

}  // namespace heterog::learn

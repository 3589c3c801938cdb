// Viterbi over the groups in topological order; every change of action costs the same.
#include "learn/drawing/decode.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heterog::learn {
namespace {

// Row by row; each the worth of giving a group an action.
struct Worth {
  std::size_t groups = 0, actions = 0;
  std::vector<double> values;
  const double* row(std::size_t group) const { return values.data() + group * actions; }
};

Worth worth_of(const torch::Tensor& log_probabilities, const std::vector<double>& weights,
               Rng* noise) {
  const auto log_p = log_probabilities.detach().to(torch::kFloat64).contiguous();
  Worth worth{.groups = static_cast<std::size_t>(log_p.size(0)),
              .actions = static_cast<std::size_t>(log_p.size(1))};
  EXPECT(weights.size() == worth.groups);
  const double* p = log_p.data_ptr<double>();
  worth.values.assign(p, p + worth.groups * worth.actions);
  for (std::size_t n = 0; n < worth.groups; ++n) {
    const double weight = static_cast<double>(worth.groups) * weights[n];
    for (std::size_t a = 0; a < worth.actions; ++a) {
      double& value = worth.values[n * worth.actions + a];
      if (noise) value -= std::log(-std::log(std::max(noise->uniform(), 1e-300)));
      value *= weight;
    }
  }
  return worth;
}

Actions best_path(const Worth& worth, double switch_cost) {
  std::vector<double> best(worth.row(0), worth.row(0) + worth.actions);
  // Of each group but the first: the action before, if this one is not gone on with.
  std::vector<std::size_t> from(worth.groups, 0);
  std::vector<bool> stays(worth.groups * worth.actions, true);
  for (std::size_t n = 1; n < worth.groups; ++n) {
    from[n] = static_cast<std::size_t>(std::ranges::max_element(best) - best.begin());
    const double elsewhere = best[from[n]] - switch_cost;
    for (std::size_t a = 0; a < worth.actions; ++a) {
      stays[n * worth.actions + a] = best[a] >= elsewhere;
      best[a] = std::max(best[a], elsewhere) + worth.row(n)[a];
    }
  }
  Actions actions(worth.groups);
  auto last = static_cast<std::size_t>(std::ranges::max_element(best) - best.begin());
  for (std::size_t n = worth.groups; n-- > 0;) {
    actions[n] = space::ActionId(last);
    if (n > 0 && !stays[n * worth.actions + last]) last = from[n];
  }
  return actions;
}

}  // namespace

Actions decode(const torch::Tensor& log_probabilities, const std::vector<double>& weights,
               double switch_cost) {
  return best_path(worth_of(log_probabilities, weights, nullptr), switch_cost);
}

std::vector<Actions> decode_proposals(const torch::Tensor& log_probabilities,
                                      const std::vector<double>& weights) {
  std::vector<Actions> proposals;
  for (const double switch_cost : kSwitchCosts) {
    proposals.push_back(decode(log_probabilities, weights, switch_cost));
  }
  return proposals;
}

Actions decode_draw(const torch::Tensor& log_probabilities, const std::vector<double>& weights,
                    double switch_cost, Rng rng) {
  return best_path(worth_of(log_probabilities, weights, &rng), switch_cost);
}

}  // namespace heterog::learn

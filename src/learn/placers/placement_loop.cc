// draw → simulate → advantage → loss → step, until the budget is spent.
#include "learn/placers/placement_loop.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "decide/decisions.h"
#include "learn/network/network.h"
#include "learn/placers/placers.h"
#include "learn/reinforce/case.h"
#include "learn/reinforce/reinforce.h"
#include "search/starts/starts.h"

namespace heterog::learn {
namespace {

using search::BatchEvaluator;

constexpr double kEntropyWeight = 0.01;
constexpr double kNormClip = 1.0;  // of the global norm of gradients

decide::Strategy placed_units(const cost::Problem& problem, const graph::Grouping& grouping,
                              const std::vector<DeviceId>& devices) {
  decide::Strategy strategy;
  for (DeviceId device : problem.cluster->device_ids()) {
    strategy.units.push_back(decide::single_decision(device));
  }
  for (OpId op : problem.graph->op_ids()) {
    strategy.unit_of_op.push_back(UnitId(devices[grouping.group_of[op].value()].value()));
  }
  return strategy;
}

std::unique_ptr<Placer> make_placer(PlacerKind kind, const FeatureTensors& features,
                                    std::int64_t groups, std::uint64_t seed) {
  const SeededWeights weights(seed);
  switch (kind) {
    case PlacerKind::kReinforce:
      return make_reinforce(features);
    case PlacerKind::kHrl:
      return make_hrl(features, groups);
    case PlacerKind::kPost:
      return make_post(features.groups.size(0), features.devices.size(0));
    case PlacerKind::kGdp:
      return make_gdp(features);
  }
  fail_input("no such placer");
}

// One round of draws, and what they came to.
struct Round {
  torch::Tensor draws;
  std::vector<double> rewards;
};

// The best tenth of what was drawn, at least one.
torch::Tensor elite(const std::vector<Round>& rounds) {
  std::vector<std::pair<double, torch::Tensor>> all;
  for (const Round& round : rounds) {
    for (std::size_t s = 0; s < round.rewards.size(); ++s) {
      all.emplace_back(round.rewards[s], round.draws[static_cast<std::int64_t>(s)]);
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &std::pair<double, torch::Tensor>::first);
  std::vector<torch::Tensor> best;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, all.size() / 10); ++i) {
    best.push_back(all[i].second);
  }
  return torch::stack(best);
}

class Learning {
 public:
  Learning(PlacerKind kind, const PlacerOptions& options, search::PlannerContext& context)
      : options_(options),
        problem_(context.problem()),
        // HRL groups units by itself.
        units_(regrouped(problem_,
                         kind == PlacerKind::kHrl ? 2000 : static_cast<int>(options.groups))),
        evaluator_(context.oracle, context.budget),
        rng_(context.rng) {
    const auto features = to_tensors(make_features(*units_));
    const std::int64_t groups = std::min<std::int64_t>(options.groups, features.groups.size(0));
    placer_ = make_placer(kind, features, groups, rng_.split(1)());
    rule_ = placer_->rule();
    // What is left is for other orders.
    const auto others = static_cast<std::int64_t>(std::size(decide::kSearchedOrders)) - 1;
    if (context.budget.evaluations) {
      draws_left_ = std::max<std::int64_t>(1, *context.budget.evaluations - others);
    } else if (!context.budget.time_used) {
      draws_left_ = options.evaluations;
    }
  }

  search::PlannerResult run() {
    torch::optim::Adam optimizer(placer_->parameters(),
                                 torch::optim::AdamOptions(rule_.learning_rate));
    RewardAverage average;
    std::vector<Round> recent;
    for (std::uint64_t number = 0; draws_left_ > 0; ++number) {
      Round round = draw(number);
      average = updated(average, round.rewards);
      step(round, advantages(round.rewards, average, TrainConfig{}), optimizer);
      if (rule_.imitate_every > 0) {
        recent.push_back(std::move(round));
        if (static_cast<int>(recent.size()) == rule_.imitate_every) {
          placer_->imitate(elite(recent));
          recent.clear();
        }
      }
      if (evaluator_.spent()) break;
    }
    try_orders();
    best_.evaluations = evaluator_.evaluations();
    best_.refused = evaluator_.refused();
    return std::move(best_);
  }

 private:
  Round draw(std::uint64_t number) {
    const std::int64_t count = std::min(options_.samples, draws_left_);
    draws_left_ -= count;
    Round round{.draws = placer_->draw(count, rng_.split(2).split(number)), .rewards = {}};
    std::vector<decide::Strategy> strategies;
    for (std::int64_t s = 0; s < count; ++s) {
      strategies.push_back(
          placed_units(problem_, units_->grouping, placer_->devices(round.draws[s])));
    }
    for (const search::Measured& one : consider(strategies)) {
      round.rewards.push_back(one.evaluation.reward);
    }
    return round;
  }

  void step(const Round& round, const std::vector<double>& worth, torch::optim::Adam& optimizer) {
    torch::Tensor before;
    for (int epoch = 0; epoch < rule_.epochs; ++epoch) {
      const Likelihood now = placer_->likelihood(round.draws);
      if (epoch == 0) before = now.log_p.detach();
      optimizer.zero_grad();
      placer_loss(now, before, worth, rule_, kEntropyWeight).backward();
      torch::nn::utils::clip_grad_norm_(placer_->parameters(), kNormClip);
      optimizer.step();
    }
  }

  void try_orders() {
    std::vector<decide::Strategy> others;
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      if (order == best_.strategy.order) continue;
      others.push_back(best_.strategy);
      others.back().order = order;
    }
    if (!evaluator_.spent()) consider(others);
  }

  std::vector<search::Measured> consider(const std::vector<decide::Strategy>& strategies) {
    std::vector<search::Measured> measured = evaluator_.evaluate(strategies);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      if (best_.evaluation.step != 0 && !better(measured[i].evaluation, best_.evaluation)) continue;
      best_.strategy = strategies[i];
      best_.evaluation = measured[i].evaluation;
    }
    return measured;
  }

  PlacerOptions options_;
  const cost::Problem& problem_;
  std::unique_ptr<const cost::Problem> units_;  // whose groups are placed
  BatchEvaluator evaluator_;
  Rng rng_;
  std::unique_ptr<Placer> placer_;
  Rule rule_;
  std::int64_t draws_left_ = search::kUnbounded;
  search::PlannerResult best_;
};

}  // namespace

torch::Tensor placer_loss(const Likelihood& now, const torch::Tensor& before,
                          std::span<const double> advantages, const Rule& rule,
                          double entropy_weight) {
  const auto advantage =
      torch::tensor(std::vector<double>(advantages.begin(), advantages.end()), torch::kFloat64)
          .to(now.log_p.dtype())
          .unsqueeze(1);  // [S, 1]
  torch::Tensor gain = advantage * now.log_p;
  if (rule.clip > 0) {
    const auto ratio = (now.log_p - before).exp();
    gain = torch::minimum(advantage * ratio, advantage * ratio.clamp(1 - rule.clip, 1 + rule.clip));
  }
  return -gain.mean() - entropy_weight * now.entropy;
}

search::PlannerResult learn_placement(PlacerKind kind, const PlacerOptions& options,
                                      search::PlannerContext& context) {
  use_one_network_thread();
  return Learning(kind, options, context).run();
}

}  // namespace heterog::learn

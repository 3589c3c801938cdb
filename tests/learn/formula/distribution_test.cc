// Whole plans: how likely they are said to be, how often they are drawn, and the gradient of that.
#include "learn/formula/distribution.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "learn/formula/formula_strategy.h"
#include "learn/network/network_copy.h"
#include "learn/network/problems.h"
#include "learn/reinforce/case.h"
#include "search/starts/estimated_layouts.h"

namespace heterog::learn {
namespace {

TrainConfig formula_config(std::int64_t groups) {
  TrainConfig config;
  config.actions = "formula";
  config.max_groups = groups;
  config.gat_head_width = 4;
  config.txl_width = 8;
  config.txl_inner_width = 8;
  config.head_width = 8;
  return config;
}

Case formula_case(const std::string& model, const std::string& cluster, std::int64_t batch,
                  int groups) {
  const auto problem = test_problem(model, cluster, batch, 2000);
  return make_case(model, regrouped(*problem, groups), decide::OrderPolicy::kRankQueued,
                   formula_config(groups));
}

// What a network could say: anything.
FormulaOutput random_output(const Case& c, double scale) {
  torch::manual_seed(5);
  const auto groups = static_cast<std::int64_t>(c.formula->costs.groups);
  const auto rows = static_cast<std::int64_t>(c.formula->costs.layouts);
  const auto random = [&](std::vector<std::int64_t> shape) {
    return (scale * torch::randn(shape, torch::kFloat64)).requires_grad_();
  };
  FormulaOutput output{.residual = random({groups, rows}),
                       .unhidden = random({groups}),
                       .moving = random({groups}),
                       .change = random({groups}),
                       .sharpness = random({}),
                       .knobs = {},
                       .allowed = c.features.allowed};
  for (const std::size_t values : kKnobValues) {
    const auto columns = static_cast<std::int64_t>(values);
    output.knobs.push_back(output.knobs.empty()
                               ? random({columns})
                               : random({static_cast<std::int64_t>(kLayouts), columns}));
  }
  return output;
}

TEST(FormulaDistribution, BeginsAsTheFormula) {
  const Case c = formula_case("vgg19-tiny", "heterog-4gpu", 64, 8);
  const PolicyNetwork network = make_network(formula_config(8), 3);
  const Said said = say(network, c.features);
  ASSERT_TRUE(said.formula);
  EXPECT_EQ(said.formula->residual.abs().max().item<double>(), 0);
  std::size_t seen = 0;
  visit_likely_plans(*c.formula, *said.formula, [&](const DrawnPlan& plan) {
    EXPECT_EQ(plan.path, c.formula->paths[plan.choice[0]]);
    return ++seen < 40;
  });
  // All that searches begin with by the same formula are among them, whatever their schedule.
  std::vector<decide::Strategy> proposed;
  visit_likely_plans(*c.formula, *said.formula, [&](const DrawnPlan& plan) {
    proposed.push_back(formula_strategy(*c.problem, *c.space, *c.formula, plan));
    return true;
  });
  const std::vector<decide::Strategy> starts = search::estimated_layouts(*c.problem);
  ASSERT_GT(starts.size(), 1u);
  for (const decide::Strategy& start : starts) {
    EXPECT_TRUE(std::ranges::any_of(
        proposed, [&](const decide::Strategy& one) { return one.units == start.units; }));
  }
}

// 192 samples of which eight GPUs hold 90: forward passes run again, or pass in micro-batches whose
// gradients are not put off.
TEST(FormulaDistribution, BeginsWithWhatFits) {
  const Case c = formula_case("bert_large24", "heterog-8gpu", 192, 24);
  const Said said = say(make_network(formula_config(24), 3), c.features);
  std::vector<Actions> proposed;
  visit_likely_plans(*c.formula, *said.formula, [&](const DrawnPlan& plan) {
    proposed.push_back(to_actions(*c.formula, plan));
    return proposed.size() < 6;
  });
  for (const DrawnPlan& plan : formula_plans(*c.formula)) {
    proposed.push_back(to_actions(*c.formula, plan));
  }
  ThreadPool threads(1);
  std::size_t fitting = 0;
  for (const search::Evaluation& e : evaluate_samples(c, proposed, simulated(threads))) {
    fitting += e.feasible ? 1 : 0;
  }
  EXPECT_GE(fitting, proposed.size() - 2);
}

// Devices are unlike, and shares by the formula's speeds are not the best ones. Of one device or a
// pipeline nothing is settled.
TEST(FormulaDistribution, DrawsAreJudgedAsTheyAreOnceSettled) {
  const Case c = formula_case("vgg19", "heterog-8gpu", 192, 12);
  std::vector<Actions> drawn;
  std::vector<bool> pipeline;
  for (const DrawnPlan& plan : draw_plans(*c.formula, random_output(c, 0), 24, Rng(3))) {
    drawn.push_back(to_actions(*c.formula, plan));
    pipeline.push_back(is_pipeline(mode_of(plan.choice[0])));
  }
  ThreadPool threads(1);
  const auto once = evaluate_samples(c, drawn, simulated(threads));
  const auto settled = evaluate_samples(c, drawn, simulated(threads, 1));
  int better = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_FALSE(search::better(once[i], settled[i]));
    if (pipeline[i]) {
      EXPECT_EQ(once[i].step, settled[i].step);
    }
    better += search::better(settled[i], once[i]) ? 1 : 0;
  }
  EXPECT_GT(better, 2);
  EXPECT_GT(std::ranges::count(pipeline, true), 0);
}

TEST(FormulaDistribution, ParametersMayHaveSeveralServers) {
  const Case c = formula_case("alexnet", "heterog-4gpu", 64, 8);
  const FormulaOutput output = random_output(c, 0);
  std::size_t with = 0;
  visit_likely_plans(*c.formula, output, [&](const DrawnPlan& plan) {
    const decide::Strategy strategy = formula_strategy(*c.problem, *c.space, *c.formula, plan);
    const bool several = plan.choice[static_cast<std::size_t>(Knob::kServers)] == kSeveralServers;
    for (const decide::ParameterSync& sync : strategy.sync) {
      EXPECT_TRUE(several);
      EXPECT_GT(sync.servers.size(), 1u);
      ++with;
    }
    return true;
  });
  EXPECT_GT(with, 0u);
}

TEST(FormulaDistribution, AddsUpToOne) {
  const Case c = formula_case("lenet5-tiny", "heterog-4gpu", 16, 2);
  const FormulaOutput output = random_output(c, 0.5);
  const std::size_t rows = c.formula->costs.layouts;
  const auto likelihood = [&](const PlanChoice& choice, const Path& path) {
    const double log_p =
        weighted_log_likelihood(*c.formula, output, {{.choice = choice, .path = path}}, {1})
            .item<double>();
    return std::isnan(log_p) ? 0 : std::exp(log_p);
  };
  // The paths of a layout, of two groups, are as likely beside each other under all its choices.
  std::map<std::uint32_t, double> all_paths;  // by layout: over the best path's likelihood
  double sum = 0;
  std::size_t choices = 0;
  visit_likely_plans(*c.formula, output, [&](const DrawnPlan& likely) {
    ++choices;
    const double best = likelihood(likely.choice, likely.path);
    const auto [at, fresh] = all_paths.try_emplace(likely.choice[0], 0.0);
    const bool one_path = is_pipeline(mode_of(likely.choice[0]));
    if (one_path) at->second = 1;
    for (std::uint32_t a = 0; fresh && !one_path && a < rows; ++a) {
      for (std::uint32_t b = 0; b < rows; ++b) {
        at->second += likelihood(likely.choice, {a, b}) / best;
      }
    }
    sum += at->second * best;
    return true;
  });
  EXPECT_GT(choices, 100u);
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(FormulaDistribution, GradientsAreThoseOfTheLogLikelihood) {
  const Case c = formula_case("vgg19-tiny", "heterog-4gpu", 64, 4);
  FormulaOutput output = random_output(c, 0.3);
  const std::vector<DrawnPlan> plans = draw_plans(*c.formula, output, 6, Rng(2));
  const std::vector<double> weights = {0.5, -1.2, 2, -0.3, 0.7, 1.1};
  weighted_log_likelihood(*c.formula, output, plans, weights).backward();
  std::vector<torch::Tensor> leaves = {output.residual, output.unhidden, output.moving,
                                       output.change, output.sharpness};
  leaves.insert(leaves.end(), output.knobs.begin(), output.knobs.end());
  constexpr double kStep = 1e-5;
  for (torch::Tensor& leaf : leaves) {
    const torch::NoGradGuard no_grad;
    auto flat = leaf.view({-1});
    for (std::int64_t i = 0; i < flat.size(0); i += 1 + flat.size(0) / 12) {
      const double before = flat[i].item<double>();
      const auto at = [&](double value) {
        flat[i] = value;
        return weighted_log_likelihood(*c.formula, output, plans, weights).item<double>();
      };
      const double slope = (at(before + kStep) - at(before - kStep)) / (2 * kStep);
      flat[i] = before;
      const double gradient = leaf.grad().defined() ? leaf.grad().view({-1})[i].item<double>() : 0;
      EXPECT_NEAR(gradient, slope, 1e-5 * std::max(1.0, std::abs(slope)));
    }
  }
}

// Of a stretch alone, by π given the rest: as often as draws of whole paths that agree elsewhere.
TEST(FormulaDistribution, PartsAreDrawnGivenTheRest) {
  const Case c = formula_case("vgg19-tiny", "heterog-4gpu", 64, 8);
  const FormulaOutput output = random_output(c, 1);
  std::optional<DrawnPlan> start;
  for (const DrawnPlan& plan : draw_plans(*c.formula, output, 50, Rng(3))) {
    if (!is_pipeline(mode_of(plan.choice[0]))) start = plan;
  }
  ASSERT_TRUE(start);
  std::map<Path, double> seen;  // plans in which the last group alone may differ
  std::size_t paths = 0, short_ones = 0, knobs = 0;
  for (const DrawnPlan& plan : redraw_parts(*c.formula, output, *start, 60'000, Rng(4))) {
    if (plan.choice != start->choice) {
      ++knobs;
      continue;
    }
    std::size_t first = 0, last = 0, differing = 0;
    for (std::size_t n = 0; n < plan.path.size(); ++n) {
      if (plan.path[n] == start->path[n]) continue;
      if (differing++ == 0) first = n;
      last = n;
    }
    paths += differing > 0;
    short_ones += differing > 0 && last - first < start->path.size() / 2;
    if (differing == 1 && first + 1 == plan.path.size()) ++seen[plan.path];
  }
  EXPECT_GT(paths, 1000u);
  EXPECT_GT(short_ones, paths * 2 / 3);  // three of four stretches have half the groups at most
  EXPECT_GT(knobs, 1000u);
  ASSERT_GT(seen.size(), 2u);
  const auto log_p = [&](const Path& path) {
    return weighted_log_likelihood(*c.formula, output, {{.choice = start->choice, .path = path}},
                                   {1})
        .item<double>();
  };
  // Of those that were drawn often enough to tell.
  const auto most = std::ranges::max_element(seen, {}, [](const auto& one) { return one.second; });
  for (const auto& [path, count] : seen) {
    if (count < 200) continue;
    EXPECT_NEAR(std::log(count / most->second), log_p(path) - log_p(most->first),
                5 / std::sqrt(count));
  }
}

TEST(FormulaDistribution, EveryDrawIsAPlan) {
  const Case c = formula_case("bert_large24-tiny", "heterog-4gpu", 16, 12);
  const FormulaOutput output = random_output(c, 1);
  const std::vector<DrawnPlan> plans = draw_plans(*c.formula, output, 200, Rng(9));
  EXPECT_EQ(draw_plans(*c.formula, output, 20, Rng(9))[19], plans[19]);
  std::set<LayoutMode> modes;
  std::set<decide::Pattern> patterns;
  std::vector<Actions> drawn;
  for (const DrawnPlan& plan : plans) {
    modes.insert(mode_of(plan.choice[0]));
    drawn.push_back(to_actions(*c.formula, plan));
    EXPECT_EQ(drawn.back().size(), decision_count(c));
    EXPECT_EQ(to_plan(*c.formula, drawn.back()), plan);
    for (std::size_t i = 0; i < drawn.back().size(); ++i) {
      EXPECT_LT(drawn.back()[i].value(), decision_values(c, i));
    }
    const decide::Strategy strategy = standalone_strategy(c, drawn.back());
    EXPECT_EQ(strategy.micro_batches > 1, is_pipeline(mode_of(plan.choice[0])));
    if (strategy.micro_batches > 1) {
      EXPECT_EQ(strategy.pattern, kPatternValues[plan.choice[std::size_t(Knob::kOrder)]]);
      patterns.insert(strategy.pattern);
    }
  }
  EXPECT_EQ(modes.size(), kLayoutModes);
  EXPECT_EQ(patterns.size(), kPatternValues.size());
  ThreadPool threads(1);
  for (const search::Evaluation& e : evaluate_samples(c, drawn, simulated(threads))) {
    EXPECT_GT(e.step, 0);
  }
}

}  // namespace
}  // namespace heterog::learn

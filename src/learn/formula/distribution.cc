// The chain's part is computed in C++, and its gradient is written down: of a chain, ∂ log π(a) by
// a potential is what the path has of it less what is expected of it.
#include "learn/formula/distribution.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace heterog::learn {
namespace {

// Nats a group that a step twice the best one's length is less likely by, before anything is
// learnt: draws then differ from the best layout in a stretch or two.
constexpr double kSharpness = 8;

// Nats by which a mode's next choice is put back behind its last one, where plans are proposed.
constexpr double kAgain = 2;

std::vector<double> doubles_of(const torch::Tensor& tensor) {
  const auto values = tensor.detach().to(torch::kFloat64).contiguous();
  const double* data = values.data_ptr<double>();
  return {data, data + values.numel()};
}

torch::Tensor from_doubles(const std::vector<double>& values) {
  return torch::tensor(values, torch::kFloat64);
}

torch::Tensor from_flags(const std::vector<bool>& flags) {
  return torch::tensor(std::vector<std::uint8_t>(flags.begin(), flags.end()), torch::kUInt8)
      .to(torch::kBool);
}

// The chain of a layout, as tensors that gradients reach and as numbers.
struct LearntChain {
  torch::Tensor own;     // [N, A], 0 where a row is impossible
  torch::Tensor weight;  // [N]
  torch::Tensor change;  // [N]
  Chain chain;
};

LearntChain learnt_chain(const FormulaTerms& terms, const FormulaOutput& output,
                         std::size_t layout) {
  const space::LayoutCosts& costs = terms.costs;
  const auto groups = static_cast<std::int64_t>(costs.groups);
  const auto rows = static_cast<std::int64_t>(costs.layouts);
  const auto wanted = from_flags(terms.allowed[layout]).unsqueeze(0).expand({groups, rows});
  // Where the state of a group fits in none of these rows, memory is for whoever simulates it.
  const auto fitting = wanted.logical_and(output.allowed);
  const auto possible = torch::where(fitting.any(1, /*keepdim=*/true), fitting, wanted);
  const auto never = possible.logical_not();
  const auto compute = from_doubles(costs.compute).view({groups, rows}).masked_fill(never, 0);
  const auto sync = from_doubles(costs.sync).view({groups, rows});
  const auto nats_a_second =
      kSharpness * static_cast<double>(groups) / terms.seconds[layout] * output.sharpness.exp();
  const auto seconds = compute + unhidden_of(layout) * sync * output.unhidden.exp().unsqueeze(1);
  LearntChain learnt{.own = (output.residual - nats_a_second * seconds).masked_fill(never, 0),
                     .weight = nats_a_second * from_doubles(costs.crossing) * output.moving.exp(),
                     .change = output.change,
                     .chain = {}};
  learnt.chain = {.groups = costs.groups,
                  .rows = costs.layouts,
                  .own = doubles_of(learnt.own.masked_fill(never, kImpossible)),
                  .weight = doubles_of(learnt.weight),
                  .change = doubles_of(learnt.change),
                  .moving = costs.moving};
  return learnt;
}

// log π of each knob's values, shaped as the logits. A layout that has no row is impossible.
std::vector<torch::Tensor> knob_log_probabilities(const FormulaTerms& terms,
                                                  const FormulaOutput& output) {
  std::vector<bool> never;
  for (const double seconds : terms.seconds) never.push_back(!std::isfinite(seconds));
  std::vector<torch::Tensor> log_p = {
      torch::log_softmax(output.knobs[0].masked_fill(from_flags(never), kImpossible), 0)};
  for (std::size_t knob = 1; knob < kKnobValues.size(); ++knob) {
    log_p.push_back(torch::log_softmax(output.knobs[knob], 1));
  }
  return log_p;
}

// The same as numbers.
class KnobNumbers {
 public:
  explicit KnobNumbers(const std::vector<torch::Tensor>& log_p) {
    for (const torch::Tensor& tensor : log_p) values_.push_back(doubles_of(tensor));
  }
  // Of a knob's values, beside a layout that the knob may depend on.
  std::span<const double> of(std::size_t knob, std::uint32_t layout) const {
    const std::span<const double> all = values_[knob];
    return knob == 0 ? all : all.subspan(layout * kKnobValues[knob], kKnobValues[knob]);
  }

 private:
  std::vector<std::vector<double>> values_;
};

std::uint32_t draw_value(std::span<const double> log_p, Rng& rng) {
  double left = rng.uniform();
  std::uint32_t value = 0;
  for (std::uint32_t i = 0; i < log_p.size(); ++i) {
    const double p = std::exp(log_p[i]);
    if (p > 0) value = i;
    left -= p;
    if (left < 0) break;
  }
  return value;
}

// What paths have of each potential, each path times its weight, less what is expected of it: the
// gradient of Σ weight · log π(path).
struct ChainGradient {
  std::vector<double> own, moving, changed;
};

ChainGradient chain_gradient(const Chain& chain, const Filtered& filtered,
                             const std::vector<const Path*>& paths,
                             const std::vector<double>& weights) {
  const Expected mean = expected(chain, filtered);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  ChainGradient gradient{.own = mean.own, .moving = mean.moving, .changed = mean.changed};
  for (std::vector<double>* values : {&gradient.own, &gradient.moving, &gradient.changed}) {
    for (double& value : *values) value *= -sum;
  }
  for (std::size_t s = 0; s < paths.size(); ++s) {
    const Path& path = *paths[s];
    for (std::size_t n = 0; n < chain.groups; ++n) {
      gradient.own[n * chain.rows + path[n]] += weights[s];
      if (n == 0 || path[n] == path[n - 1]) continue;
      gradient.moving[n] += weights[s] * chain.moving[path[n - 1] * chain.rows + path[n]];
      gradient.changed[n] += weights[s];
    }
  }
  return gradient;
}

// A number whose gradient by the chain's tensors is this.
torch::Tensor with_gradient(const LearntChain& learnt, const ChainGradient& gradient) {
  return (from_doubles(gradient.own).view(learnt.own.sizes()) * learnt.own).sum() -
         (from_doubles(gradient.moving) * learnt.weight).sum() -
         (from_doubles(gradient.changed) * learnt.change).sum();
}

}  // namespace

FormulaOutput on_cpu(FormulaOutput output) {
  for (torch::Tensor* tensor : {&output.residual, &output.unhidden, &output.moving, &output.change,
                                &output.sharpness, &output.allowed}) {
    *tensor = tensor->cpu();
  }
  for (torch::Tensor& knob : output.knobs) knob = knob.cpu();
  return output;
}

std::vector<space::ActionId> to_actions(const FormulaTerms& terms, const DrawnPlan& plan) {
  std::vector<space::ActionId> actions;
  for (const std::uint32_t row : plan.path) actions.push_back(terms.rows[row]);
  for (const std::uint32_t value : plan.choice) actions.emplace_back(value);
  return actions;
}

DrawnPlan to_plan(const FormulaTerms& terms, const std::vector<space::ActionId>& actions) {
  EXPECT(actions.size() == terms.costs.groups + kKnobValues.size());
  DrawnPlan plan;
  for (std::size_t n = 0; n < terms.costs.groups; ++n) {
    plan.path.push_back(terms.row_of[actions[n]]);
  }
  for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
    plan.choice[knob] = static_cast<std::uint32_t>(actions[terms.costs.groups + knob].value());
  }
  return plan;
}

std::vector<DrawnPlan> formula_plans(const FormulaTerms& terms) {
  // Sums that count unlike parts of the aggregation are not held against each other.
  std::array<std::optional<std::uint32_t>, 2> fastest;  // a layout of groups, a pipeline
  for (std::uint32_t layout = 0; layout < kLayouts; ++layout) {
    const bool pipeline = is_pipeline(mode_of(layout));
    if (!pipeline && unhidden_of(layout) != kUnhidden[0]) continue;
    std::optional<std::uint32_t>& best = fastest[pipeline ? 1 : 0];
    if (std::isfinite(terms.seconds[layout]) &&
        (!best || terms.seconds[layout] < terms.seconds[*best])) {
      best = layout;
    }
  }
  std::vector<DrawnPlan> plans;
  for (const std::optional<std::uint32_t>& layout : fastest) {
    if (!layout) continue;
    DrawnPlan plan{.choice = {*layout}, .path = terms.paths[*layout]};
    const bool again = terms.memory[*layout].once > 0 && terms.memory[*layout].again < 0;
    plan.choice[static_cast<std::size_t>(Knob::kRecompute)] = again ? 1 : 0;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<DrawnPlan> draw_plans(const FormulaTerms& terms, const FormulaOutput& output,
                                  std::int64_t samples, const Rng& rng) {
  const torch::NoGradGuard no_grad;
  const KnobNumbers knobs(knob_log_probabilities(terms, output));
  struct Filled {
    Chain chain;
    Filtered filtered;
  };
  std::map<std::size_t, Filled> filled;  // of the layouts that are drawn
  std::vector<DrawnPlan> plans;
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng own = rng.split(static_cast<std::uint64_t>(s));
    DrawnPlan plan;
    for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
      if (matters(static_cast<Knob>(knob), mode_of(plan.choice[0]))) {
        plan.choice[knob] = draw_value(knobs.of(knob, plan.choice[0]), own);
      }
    }
    const std::size_t layout = plan.choice[0];
    if (is_pipeline(mode_of(layout))) {  // has one path alone
      plan.path = terms.paths[layout];
      plans.push_back(std::move(plan));
      continue;
    }
    auto at = filled.find(layout);
    if (at == filled.end()) {
      Chain chain = learnt_chain(terms, output, layout).chain;
      Filtered filtered = filter_forward(chain);
      at = filled.emplace(layout, Filled{std::move(chain), std::move(filtered)}).first;
    }
    plan.path = sample_backward(at->second.chain, at->second.filtered, own.split(1));
    plans.push_back(std::move(plan));
  }
  return plans;
}

void visit_likely_plans(const FormulaTerms& terms, const FormulaOutput& output,
                        const std::function<bool(const DrawnPlan&)>& take) {
  const torch::NoGradGuard no_grad;
  const KnobNumbers knobs(knob_log_probabilities(terms, output));
  // Every choice, knob after knob.
  std::vector<std::pair<double, PlanChoice>> choices = {{0.0, {}}};
  for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
    std::vector<std::pair<double, PlanChoice>> longer;
    for (const auto& [log_p, choice] : choices) {
      if (!matters(static_cast<Knob>(knob), mode_of(choice[0]))) {
        longer.emplace_back(log_p, choice);
        continue;
      }
      const std::span<const double> of_values = knobs.of(knob, choice[0]);
      for (std::uint32_t value = 0; value < kKnobValues[knob]; ++value) {
        if (!std::isfinite(of_values[value])) continue;
        longer.emplace_back(log_p + of_values[value], choice);
        longer.back().second[knob] = value;
      }
    }
    choices = std::move(longer);
  }
  const auto most_likely_first = [&] {
    std::ranges::stable_sort(choices, std::greater<>{}, &std::pair<double, PlanChoice>::first);
  };
  // Of a few plans, those of several modes say more than one mode in many schedules.
  most_likely_first();
  std::array<int, kLayoutModes> before{};
  for (auto& [log_p, choice] : choices) {
    log_p -= kAgain * before[static_cast<std::size_t>(mode_of(choice[0]))]++;
  }
  most_likely_first();
  std::map<std::size_t, Path> paths;
  for (const auto& [log_p, choice] : choices) {
    const auto [at, fresh] = paths.try_emplace(choice[0]);
    if (fresh) {
      at->second = is_pipeline(mode_of(choice[0]))
                       ? terms.paths[choice[0]]
                       : best_path(learnt_chain(terms, output, choice[0]).chain);
    }
    if (!take({.choice = choice, .path = at->second})) return;
  }
}

torch::Tensor weighted_log_likelihood(const FormulaTerms& terms, const FormulaOutput& output,
                                      const std::vector<DrawnPlan>& plans,
                                      const std::vector<double>& weights) {
  const std::vector<torch::Tensor> knobs = knob_log_probabilities(terms, output);
  std::map<std::size_t, std::vector<std::size_t>> by_layout;
  torch::Tensor sum = torch::zeros({}, torch::kFloat64);
  for (std::size_t s = 0; s < plans.size(); ++s) {
    const PlanChoice& choice = plans[s].choice;
    by_layout[choice[0]].push_back(s);
    for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
      if (!matters(static_cast<Knob>(knob), mode_of(choice[0]))) continue;
      const torch::Tensor of_values =
          knob == 0 ? knobs[0] : knobs[knob][static_cast<std::int64_t>(choice[0])];
      sum = sum + weights[s] * of_values[static_cast<std::int64_t>(choice[knob])];
    }
  }
  for (const auto& [layout, samples] : by_layout) {
    if (is_pipeline(mode_of(layout))) continue;
    const LearntChain learnt = learnt_chain(terms, output, layout);
    std::vector<const Path*> paths;
    std::vector<double> own_weights;
    double log_likelihood = 0;
    const Filtered filtered = filter_forward(learnt.chain);
    for (const std::size_t s : samples) {
      paths.push_back(&plans[s].path);
      own_weights.push_back(weights[s]);
      log_likelihood += weights[s] * (score(learnt.chain, plans[s].path) - filtered.log_z);
    }
    const torch::Tensor linear =
        with_gradient(learnt, chain_gradient(learnt.chain, filtered, paths, own_weights));
    sum = sum + log_likelihood + (linear - linear.detach());
  }
  return sum;
}

torch::Tensor knob_entropy(const FormulaTerms& terms, const FormulaOutput& output) {
  const std::vector<torch::Tensor> knobs = knob_log_probabilities(terms, output);
  const torch::Tensor layouts = knobs[0].exp();
  // Of what is impossible, 0 · −∞.
  torch::Tensor entropy = -(layouts * knobs[0].masked_fill(knobs[0].isinf(), 0)).sum();
  for (std::size_t knob = 1; knob < kKnobValues.size(); ++knob) {
    std::vector<double> counts;
    for (std::size_t layout = 0; layout < kLayouts; ++layout) {
      counts.push_back(matters(static_cast<Knob>(knob), mode_of(layout)) ? 1 : 0);
    }
    const torch::Tensor each = -(knobs[knob].exp() * knobs[knob]).sum(1);
    entropy = entropy + (layouts * from_doubles(counts) * each).sum();
  }
  return entropy;
}

}  // namespace heterog::learn

// The chain's part is computed in C++, and its gradient is written down: of a chain, ∂ log π(a) by
// a potential is what the path has of it less what is expected of it.
#include "learn/formula/distribution.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <bit>
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

// What the formula says of memory, in nats: so many for each part of itself that a device lacks, to
// at most so many, as the estimate may be wrong; and for running all forward passes again.
constexpr double kNatsOfMemory = 16, kMostNatsOfMemory = 4, kNatsOfRunningAgain = 1;

double nats_of_memory(double need) {
  return std::clamp(kNatsOfMemory * need, 0.0, kMostNatsOfMemory);
}

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

// What the formula adds to the logits of each knob, shaped as these: plans that lack memory are
// unlikely. A layout that has no row is impossible.
std::vector<torch::Tensor> knobs_by_memory(const FormulaTerms& terms) {
  std::vector<std::vector<double>> nats;
  for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
    nats.emplace_back(knob == 0 ? kLayouts : kLayouts * kKnobValues[knob], 0.0);
  }
  const auto at = [&](Knob knob, std::size_t layout, std::size_t value) -> double& {
    const auto i = static_cast<std::size_t>(knob);
    return nats[i][layout * kKnobValues[i] + value];
  };
  for (std::size_t layout = 0; layout < kLayouts; ++layout) {
    if (!std::isfinite(terms.seconds[layout])) {
      nats[0][layout] = kImpossible;
      continue;
    }
    const MemoryNeed& need = terms.memory[layout];
    const double once = nats_of_memory(need.once), again = nats_of_memory(need.again);
    nats[0][layout] = -std::min(once, again);
    at(Knob::kRecompute, layout, 0) = -once;
    at(Knob::kRecompute, layout, 1) = -again - kNatsOfRunningAgain;
    if (is_pipeline(mode_of(layout))) {
      at(Knob::kOrder, layout, 0) = once - nats_of_memory(need.put_off);
    }
  }
  std::vector<torch::Tensor> tensors = {from_doubles(nats[0])};
  for (std::size_t knob = 1; knob < kKnobValues.size(); ++knob) {
    tensors.push_back(from_doubles(nats[knob]).view({static_cast<std::int64_t>(kLayouts), -1}));
  }
  return tensors;
}

// log π of each knob's values, shaped as the logits.
std::vector<torch::Tensor> knob_log_probabilities(const FormulaTerms& terms,
                                                  const FormulaOutput& output) {
  const std::vector<torch::Tensor> by_memory = knobs_by_memory(terms);
  std::vector<torch::Tensor> log_p;
  for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
    log_p.push_back(torch::log_softmax(output.knobs[knob] + by_memory[knob], knob == 0 ? 0 : 1));
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
  using Fastest = std::array<std::optional<std::uint32_t>, 2>;  // a layout of groups, a pipeline
  const auto fastest = [&](bool must_fit) {
    Fastest found;
    for (std::uint32_t layout = 0; layout < kLayouts; ++layout) {
      const bool pipeline = is_pipeline(mode_of(layout));
      if (!pipeline && unhidden_of(layout) != kUnhidden[0]) continue;
      if (!std::isfinite(terms.seconds[layout])) continue;
      const MemoryNeed& need = terms.memory[layout];
      if (must_fit && std::min(need.once, need.again) > 0) continue;
      std::optional<std::uint32_t>& best = found[pipeline ? 1 : 0];
      if (!best || terms.seconds[layout] < terms.seconds[*best]) best = layout;
    }
    return found;
  };
  Fastest chosen = fastest(/*must_fit=*/true);
  if (!chosen[0] && !chosen[1]) chosen = fastest(/*must_fit=*/false);
  std::vector<DrawnPlan> plans;
  for (const std::optional<std::uint32_t>& layout : chosen) {
    if (!layout) continue;
    DrawnPlan plan{.choice = {*layout}, .path = terms.paths[*layout]};
    const MemoryNeed& need = terms.memory[*layout];
    const bool in_turns = is_pipeline(mode_of(*layout)) && need.put_off > 0;
    plan.choice[static_cast<std::size_t>(Knob::kRecompute)] = need.once > 0 ? 1 : 0;
    plan.choice[static_cast<std::size_t>(Knob::kOrder)] = in_turns ? 1 : 0;
    plans.push_back(std::move(plan));
  }
  return plans;
}

namespace {

// Paths by π of the layouts that are asked about, each filtered once.
class PathDrawer {
 public:
  PathDrawer(const FormulaTerms& terms, const FormulaOutput& output)
      : terms_(terms), output_(output) {}
  Path draw(std::size_t layout, const Rng& rng) {
    if (is_pipeline(mode_of(layout))) return terms_.paths[layout];  // has one path alone
    const Filled& filled = of(layout);
    return sample_backward(filled.chain, filled.filtered, rng);
  }
  // The groups [begin, end) of `path` anew.
  Path redraw(std::size_t layout, const Path& path, std::size_t begin, std::size_t end,
              const Rng& rng) {
    Chain chain = of(layout).chain;
    for (std::size_t n = 0; n < chain.groups; ++n) {
      if (n >= begin && n < end) continue;
      for (std::size_t row = 0; row < chain.rows; ++row) {
        if (row != path[n]) chain.own[n * chain.rows + row] = kImpossible;
      }
    }
    return sample_backward(chain, filter_forward(chain), rng);
  }

 private:
  struct Filled {
    Chain chain;
    Filtered filtered;
  };
  const Filled& of(std::size_t layout) {
    auto at = filled_.find(layout);
    if (at == filled_.end()) {
      Chain chain = learnt_chain(terms_, output_, layout).chain;
      Filtered filtered = filter_forward(chain);
      at = filled_.emplace(layout, Filled{std::move(chain), std::move(filtered)}).first;
    }
    return at->second;
  }
  const FormulaTerms& terms_;
  const FormulaOutput& output_;
  std::map<std::size_t, Filled> filled_;
};

bool matters_to(std::size_t knob, const PlanChoice& choice) {
  return matters(static_cast<Knob>(knob), mode_of(choice[0]));
}

// One knob of the plan anew, and what depends on it.
void redraw_knob(const KnobNumbers& knobs, PathDrawer& paths, DrawnPlan& plan, Rng& rng) {
  std::vector<std::size_t> that_matter;
  for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
    if (matters_to(knob, plan.choice)) that_matter.push_back(knob);
  }
  const std::size_t knob = that_matter[rng.below(that_matter.size())];
  const std::uint32_t before = plan.choice[knob];
  plan.choice[knob] = draw_value(knobs.of(knob, plan.choice[0]), rng);
  if (knob != 0 || plan.choice[0] == before) return;
  for (std::size_t other = 1; other < kKnobValues.size(); ++other) {
    const bool matters_now = matters_to(other, plan.choice);
    plan.choice[other] = matters_now ? draw_value(knobs.of(other, plan.choice[0]), rng) : 0;
  }
  plan.path = paths.draw(plan.choice[0], rng.split(1));
}

}  // namespace

std::vector<DrawnPlan> draw_plans(const FormulaTerms& terms, const FormulaOutput& output,
                                  std::int64_t samples, const Rng& rng) {
  const torch::NoGradGuard no_grad;
  const KnobNumbers knobs(knob_log_probabilities(terms, output));
  PathDrawer paths(terms, output);
  std::vector<DrawnPlan> plans;
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng own = rng.split(static_cast<std::uint64_t>(s));
    DrawnPlan plan;
    for (std::size_t knob = 0; knob < kKnobValues.size(); ++knob) {
      if (!matters_to(knob, plan.choice)) continue;
      plan.choice[knob] = draw_value(knobs.of(knob, plan.choice[0]), own);
    }
    plan.path = paths.draw(plan.choice[0], own.split(1));
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<DrawnPlan> redraw_parts(const FormulaTerms& terms, const FormulaOutput& output,
                                    const DrawnPlan& plan, std::int64_t samples, const Rng& rng) {
  constexpr std::uint64_t kKnobEvery = 4;
  const torch::NoGradGuard no_grad;
  const KnobNumbers knobs(knob_log_probabilities(terms, output));
  PathDrawer paths(terms, output);
  const std::size_t groups = plan.path.size();
  std::vector<DrawnPlan> plans;
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng own = rng.split(static_cast<std::uint64_t>(s));
    DrawnPlan made = plan;
    if (is_pipeline(mode_of(plan.choice[0])) || own.below(kKnobEvery) == 0) {
      redraw_knob(knobs, paths, made, own);
    } else {
      const std::size_t longest = std::size_t{1} << own.below(std::bit_width(groups));
      const std::size_t length = 1 + own.below(std::min(groups, longest));
      const std::size_t begin = own.below(groups - length + 1);
      made.path = paths.redraw(plan.choice[0], plan.path, begin, begin + length, own.split(1));
    }
    plans.push_back(std::move(made));
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

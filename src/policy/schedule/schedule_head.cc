// Scores, draws and likelihoods of schedules.
#include "policy/schedule/schedule_head.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace heterog::policy {
namespace {

constexpr float kNever = -1e9f;
// What the case would take anyway is e^3 times as likely as each other option before anything is
// learnt: two draws in three are as usual in every decision.
constexpr float kUsualPrior = 3.0f;

std::int64_t begin_of(std::size_t decision) {
  return static_cast<std::int64_t>(first_option(decision));
}
std::int64_t size_of(std::size_t decision) { return static_cast<std::int64_t>(kOptions[decision]); }

// In double, all options.
std::vector<double> values_of(const torch::Tensor& logits) {
  const auto values = logits.detach().to(torch::kFloat64).contiguous();
  const double* from = values.data_ptr<double>();
  return {from, from + values.numel()};
}

bool is_masked(double logit) { return logit < kNever / 2; }

std::size_t options_of(const std::vector<double>& logits, std::size_t decision) {
  const auto begin = logits.begin() + begin_of(decision);
  return static_cast<std::size_t>(
      std::count_if(begin, begin + size_of(decision), [](double x) { return !is_masked(x); }));
}

// An option of a decision by its softmax, never one that is masked or `without`.
std::uint8_t draw_option(const std::vector<double>& logits, std::size_t decision,
                         std::size_t without, Rng& rng) {
  const auto left_out = [&](std::size_t option) { return option == without; };
  double greatest = kNever;
  for (std::size_t i = 0; i < kOptions[decision]; ++i) {
    const std::size_t option = first_option(decision) + i;
    if (!left_out(option)) greatest = std::max(greatest, logits[option]);
  }
  std::vector<double> sums;
  double total = 0;
  for (std::size_t i = 0; i < kOptions[decision]; ++i) {
    const std::size_t option = first_option(decision) + i;
    const bool none = left_out(option) || is_masked(logits[option]);
    sums.push_back(total += none ? 0 : std::exp(logits[option] - greatest));
  }
  const auto at = std::upper_bound(sums.begin(), sums.end(), rng.uniform() * total);
  return static_cast<std::uint8_t>(
      std::min<std::ptrdiff_t>(at - sums.begin(), size_of(decision) - 1));
}

}  // namespace

ScheduleHeadImpl::ScheduleHeadImpl(std::int64_t group_width, std::int64_t device_features)
    : score_(register_module("score", torch::nn::Linear(group_width + device_features,
                                                        static_cast<std::int64_t>(kAllOptions)))) {
  const torch::NoGradGuard no_grad;
  score_->weight.zero_();
  score_->bias.zero_();
}

torch::Tensor ScheduleHeadImpl::forward(const torch::Tensor& groups, const torch::Tensor& devices) {
  return score_(torch::cat({groups.mean(0), devices.mean(0)}));
}

torch::Tensor schedule_logits(const torch::Tensor& scores, const ScheduleSpace& space) {
  std::vector<float> added(kAllOptions);
  for (std::size_t i = 0; i < kAllOptions; ++i) added[i] = space.allowed[i] ? 0 : kNever;
  for (std::size_t d = 0; d < kDecisions; ++d) {
    added[first_option(d) + space.usual[d]] += kUsualPrior;
  }
  return scores + torch::tensor(added).to(scores.dtype());
}

std::vector<ScheduleDraw> draw_schedules(const torch::Tensor& logits, std::int64_t samples,
                                         const Rng& rng) {
  const std::vector<double> values = values_of(logits);
  std::vector<ScheduleDraw> draws(static_cast<std::size_t>(samples));
  for (std::size_t s = 0; s < draws.size(); ++s) {
    Rng own = rng.split(s);
    for (std::size_t d = 0; d < kDecisions; ++d) {
      draws[s].schedule[d] = draw_option(values, d, kAllOptions, own);
    }
  }
  return draws;
}

ScheduleDraw redraw(const torch::Tensor& logits, const Schedule& incumbent, Rng rng) {
  const std::vector<double> values = values_of(logits);
  std::vector<std::size_t> open;
  for (std::size_t d = 0; d < kDecisions; ++d) {
    if (options_of(values, d) > 1) open.push_back(d);
  }
  ScheduleDraw draw{.schedule = incumbent, .end = 0};
  if (open.empty()) return draw;
  draw.begin = open[rng.below(open.size())];
  draw.end = draw.begin + 1;
  draw.without = first_option(draw.begin) + incumbent[draw.begin];
  draw.schedule[draw.begin] = draw_option(values, draw.begin, draw.without, rng);
  return draw;
}

Schedule most_likely_schedule(const torch::Tensor& logits) {
  const std::vector<double> values = values_of(logits);
  Schedule schedule{};
  for (std::size_t d = 0; d < kDecisions; ++d) {
    const auto begin = values.begin() + begin_of(d);
    schedule[d] = static_cast<std::uint8_t>(std::max_element(begin, begin + size_of(d)) - begin);
  }
  return schedule;
}

torch::Tensor schedule_log_likelihood(const torch::Tensor& logits,
                                      std::span<const ScheduleDraw> draws) {
  const auto samples = static_cast<std::int64_t>(draws.size());
  std::vector<float> left_out, drawn;
  std::vector<std::int64_t> chosen;
  for (const ScheduleDraw& draw : draws) {
    for (std::size_t i = 0; i < kAllOptions; ++i) {
      left_out.push_back(i == draw.without ? kNever : 0);
    }
    for (std::size_t d = 0; d < kDecisions; ++d) {
      drawn.push_back(draw.begin <= d && d < draw.end ? 1 : 0);
      chosen.push_back(draw.schedule[d]);
    }
  }
  const auto options = torch::tensor(chosen, torch::kInt64).view({samples, kDecisions});
  const auto rows =
      logits.unsqueeze(0) + torch::tensor(left_out).to(logits.dtype()).view({samples, kAllOptions});
  std::vector<torch::Tensor> parts;
  for (std::size_t d = 0; d < kDecisions; ++d) {
    const auto log_p = torch::log_softmax(rows.narrow(1, begin_of(d), size_of(d)), 1);
    parts.push_back(log_p.gather(1, options.narrow(1, static_cast<std::int64_t>(d), 1)));
  }
  return (torch::cat(parts, 1) * torch::tensor(drawn).to(logits.dtype()).view_as(options)).sum(1);
}

torch::Tensor schedule_entropy(const torch::Tensor& logits) {
  const std::vector<double> values = values_of(logits);
  auto sum = torch::zeros({}, logits.options().requires_grad(false));
  std::int64_t open = 0;
  for (std::size_t d = 0; d < kDecisions; ++d) {
    if (options_of(values, d) < 2) continue;
    const auto log_p = torch::log_softmax(logits.narrow(0, begin_of(d), size_of(d)), 0);
    sum = sum - (log_p.exp() * log_p).sum();
    ++open;
  }
  return sum / std::max<std::int64_t>(open, 1);
}

}  // namespace heterog::policy

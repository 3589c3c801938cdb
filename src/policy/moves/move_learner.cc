// Adam over the rows of a log, in LibTorch.
#include "policy/moves/move_learner.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "planner/scorer/move_features.h"
#include "tensors/seeded_generator.h"

namespace heterog::policy {

namespace {

// The first layer takes features as they are: what makes them even goes into its weights.
planner::DenseLayer plain_layer(const torch::nn::LinearImpl& linear, const torch::Tensor& mean,
                                const torch::Tensor& deviation) {
  const torch::Tensor weights = (linear.weight / deviation).t().contiguous();
  const torch::Tensor biases = (linear.bias - (linear.weight / deviation).mv(mean)).contiguous();
  return {.inputs = static_cast<std::size_t>(weights.size(0)),
          .outputs = static_cast<std::size_t>(weights.size(1)),
          .weights = {weights.data_ptr<float>(), weights.data_ptr<float>() + weights.numel()},
          .biases = {biases.data_ptr<float>(), biases.data_ptr<float>() + biases.numel()}};
}

std::vector<std::int64_t> shuffled(std::int64_t count, Rng rng) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

}  // namespace

planner::MoveNetwork fit_moves(const MoveLog& log, const MoveFit& fit) {
  const tensors::SeededGenerator seeded(fit.seed);
  const auto rows = static_cast<std::int64_t>(log.size());
  const auto width = static_cast<std::int64_t>(log.features.size() / log.size());
  const torch::Tensor features =
      torch::from_blob(const_cast<float*>(log.features.data()), {rows, width});
  const torch::Tensor helped =
      torch::from_blob(const_cast<float*>(log.gains.data()), {rows}).gt(0).to(torch::kFloat);
  const torch::Tensor mean = features.mean(0);
  const torch::Tensor deviation = features.std(0, /*unbiased=*/false).clamp_min(1e-2);
  const torch::Tensor inputs = (features - mean) / deviation;

  std::vector<torch::nn::Linear> layers;
  std::vector<torch::Tensor> parameters;
  std::int64_t before = width;
  std::vector<std::int64_t> widths = fit.hidden;
  widths.push_back(1);
  for (const std::int64_t next : widths) {
    layers.emplace_back(before, next);
    parameters.push_back(layers.back()->weight);
    parameters.push_back(layers.back()->bias);
    before = next;
  }
  torch::optim::Adam adam(
      parameters, torch::optim::AdamOptions(fit.learning_rate).weight_decay(fit.weight_decay));
  auto& options = static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options());
  const std::int64_t steps = fit.epochs * ((rows + fit.rows - 1) / fit.rows);
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < fit.epochs; ++epoch) {
    const torch::Tensor order = torch::tensor(
        shuffled(rows, Rng(fit.seed).split(static_cast<std::uint64_t>(epoch))), torch::kLong);
    for (const torch::Tensor& some : order.split(fit.rows)) {
      torch::Tensor values = inputs.index_select(0, some);
      for (std::size_t l = 0; l < layers.size(); ++l) {
        values = layers[l]->forward(values);
        if (l + 1 < layers.size()) values = values.relu();
      }
      const torch::Tensor loss =
          torch::binary_cross_entropy_with_logits(values.squeeze(1), helped.index_select(0, some));
      options.lr(fit.learning_rate * static_cast<double>(steps - step++) /
                 static_cast<double>(steps));
      adam.zero_grad();
      loss.backward();
      adam.step();
    }
  }
  const torch::NoGradGuard no_grad;
  planner::MoveNetwork network;
  for (const torch::nn::Linear& layer : layers) {
    const bool first = network.layers.empty();
    network.layers.push_back(plain_layer(*layer,
                                         first ? mean : torch::zeros({layer->weight.size(1)}),
                                         first ? deviation : torch::ones({layer->weight.size(1)})));
  }
  return network;
}

MoveSkill skill_of(const planner::MoveNetwork& network, const MoveLog& log) {
  const std::size_t width = log.features.size() / std::max<std::size_t>(1, log.size());
  std::vector<double> scores;
  for (std::size_t i = 0; i < log.size(); ++i) {
    scores.push_back(network({&log.features[i * width], width}));
  }
  MoveSkill skill;
  // Rank sums, ties by the mean of their ranks.
  std::vector<std::size_t> order(log.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return scores[i]; });
  double ranks = 0, helping = 0;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    double here = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[i]]; ++end) {
      here += log.gains[order[end]] > 0;
    }
    ranks += here * static_cast<double>(i + 1 + end) / 2;
    helping += here;
    i = end;
  }
  const double others = static_cast<double>(log.size()) - helping;
  if (helping > 0 && others > 0) {
    skill.auc = (ranks - helping * (helping + 1) / 2) / (helping * others);
  }
  std::int64_t kept = 0;
  for (std::size_t begin = 0; begin < log.size();) {
    std::size_t end = begin;
    std::vector<std::size_t> round;
    for (; end < log.size() && log.rounds[end] == log.rounds[begin]; ++end) round.push_back(end);
    std::ranges::stable_sort(round, std::ranges::greater(),
                             [&](std::size_t i) { return scores[i]; });
    const auto helps = [&](std::size_t i) { return log.gains[i] > 0; };
    if (std::ranges::any_of(round, helps)) {
      ++skill.rounds;
      round.resize((round.size() + 3) / 4);
      kept += std::ranges::any_of(round, helps);
    }
    begin = end;
  }
  if (skill.rounds > 0) skill.kept = static_cast<double>(kept) / static_cast<double>(skill.rounds);
  return skill;
}

MoveLog select(const MoveLog& log, const std::function<bool(std::int32_t problem)>& takes) {
  MoveLog some{.names = log.names};
  const std::size_t width = log.features.size() / std::max<std::size_t>(1, log.size());
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (!takes(log.problems[i])) continue;
    const auto row = log.features.begin() + static_cast<std::ptrdiff_t>(i * width);
    some.features.insert(some.features.end(), row, row + static_cast<std::ptrdiff_t>(width));
    some.gains.push_back(log.gains[i]);
    some.rounds.push_back(log.rounds[i]);
    some.problems.push_back(log.problems[i]);
  }
  return some;
}

}  // namespace heterog::policy

// Everything goes as lists of numbers, but for gradients.
#include "learn/reinforce/shared_work.h"

#include <torch/torch.h>

#include <bit>

#include "base/check.h"

namespace heterog::learn {
namespace {

using search::Evaluation;

void put_evaluation(Numbers& numbers, const Evaluation& e) {
  numbers.insert(numbers.end(), {e.step, e.feasible ? 1 : 0, e.missing_bytes,
                                 std::bit_cast<std::int64_t>(e.reward)});
}

// From `at` on, which it moves on.
Evaluation take_evaluation(const Numbers& numbers, std::size_t& at) {
  EXPECT(at + 4 <= numbers.size());
  const Evaluation e{.step = numbers[at],
                     .feasible = numbers[at + 1] != 0,
                     .missing_bytes = numbers[at + 2],
                     .reward = std::bit_cast<double>(numbers[at + 3])};
  at += 4;
  return e;
}

}  // namespace

std::vector<std::vector<Evaluation>> evaluate_together(Team& team, const Measure& measure,
                                                       std::span<const Asked> asked) {
  const auto ranks = static_cast<std::size_t>(team.size());
  const auto rank = static_cast<std::size_t>(team.rank());
  Numbers own;
  std::size_t number = 0;
  for (const Asked& one : asked) {
    std::vector<Actions> mine;
    for (const Actions& strategy : one.strategies) {
      if (number++ % ranks == rank) mine.push_back(strategy);
    }
    if (mine.empty()) continue;
    for (const Evaluation& e : evaluate_samples(*one.of, mine, measure)) put_evaluation(own, e);
  }
  const std::vector<Numbers> all = gather_numbers(team, own);
  std::vector<std::size_t> at(ranks);
  std::vector<std::vector<Evaluation>> evaluations(asked.size());
  number = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    for (std::size_t s = 0; s < asked[i].strategies.size(); ++s) {
      const std::size_t from = number++ % ranks;
      evaluations[i].push_back(take_evaluation(all[from], at[from]));
    }
  }
  return evaluations;
}

Gradient gradient_of(const torch::Tensor& loss, const std::vector<torch::Tensor>& parameters) {
  const auto found =
      torch::autograd::grad({loss}, parameters, /*grad_outputs=*/{}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  Gradient gradient;
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& one : found) {
    gradient.present.push_back(one.defined());
    if (one.defined()) parts.push_back(one.reshape({-1}).cpu());
  }
  gradient.values =
      parts.empty() ? torch::zeros({0}, loss.options().requires_grad(false)) : torch::cat(parts);
  return gradient;
}

void add_gradient(const Gradient& gradient, const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!gradient.present[i]) continue;
    const auto part =
        gradient.values.narrow(0, at, parameters[i].numel()).view(parameters[i].sizes());
    at += parameters[i].numel();
    torch::Tensor& sum = parameters[i].mutable_grad();
    if (sum.defined()) {
      sum.add_(part);
    } else {
      sum = part.clone();
    }
  }
  EXPECT(at == gradient.values.numel());
}

std::vector<PositionLoss> gather_losses(Team& team, std::size_t count, const PositionLoss* own,
                                        const std::vector<torch::Tensor>& parameters) {
  Numbers numbers;
  auto values = torch::zeros({0}, parameters[0].options().requires_grad(false));
  if (own != nullptr) {
    numbers = {std::bit_cast<std::int64_t>(own->loss), std::bit_cast<std::int64_t>(own->entropy)};
    for (const bool present : own->gradient.present) numbers.push_back(present ? 1 : 0);
    values = own->gradient.values;
  }
  const std::vector<Numbers> all_numbers = gather_numbers(team, numbers);
  const std::vector<torch::Tensor> all_values = team.gather(values);
  std::vector<PositionLoss> losses;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const Numbers& given = all_numbers[rank];
    EXPECT(given.size() == parameters.size() + 2);
    PositionLoss loss{.loss = std::bit_cast<double>(given[0]),
                      .entropy = std::bit_cast<double>(given[1]),
                      .gradient = {.present = {}, .values = all_values[rank]}};
    for (std::size_t i = 2; i < given.size(); ++i) {
      loss.gradient.present.push_back(given[i] != 0);
    }
    losses.push_back(std::move(loss));
  }
  return losses;
}

void gather_samples(Team& team, std::span<const std::size_t> groups, std::size_t samples,
                    std::span<std::vector<Actions>> drawn) {
  const auto rank = static_cast<std::size_t>(team.rank());
  Numbers own;
  if (rank < drawn.size()) {
    for (const Actions& actions : drawn[rank]) {
      for (const space::ActionId action : actions) own.push_back(action.value());
    }
  }
  const std::vector<Numbers> all = gather_numbers(team, own);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (i == rank) continue;
    EXPECT(all[i].size() == samples * groups[i]);
    auto at = all[i].begin();
    drawn[i].assign(samples, {});
    for (Actions& actions : drawn[i]) {
      for (std::size_t n = 0; n < groups[i]; ++n) {
        actions.emplace_back(static_cast<std::size_t>(*at++));
      }
    }
  }
}

}  // namespace heterog::learn

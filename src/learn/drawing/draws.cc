// What a step tries of a case: how its strategies are drawn, and how likely the network found them.
#include "learn/drawing/draws.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace heterog::learn {
namespace {

// Probabilities [N, A], row after row, in double, summed over the rows before: the sum over any
// stretch is a difference of two.
struct SummedRows {
  std::size_t groups = 0;
  std::size_t columns = 0;
  std::vector<double> sums;  // (N + 1) × A

  explicit SummedRows(const torch::Tensor& log_probabilities)
      : groups(static_cast<std::size_t>(log_probabilities.size(0))),
        columns(static_cast<std::size_t>(log_probabilities.size(1))),
        sums((groups + 1) * columns, 0.0) {
    const auto p = log_probabilities.detach().to(torch::kFloat64).exp().contiguous();
    const double* row = p.data_ptr<double>();
    for (std::size_t n = 0; n < groups; ++n) {
      for (std::size_t a = 0; a < columns; ++a) {
        sums[(n + 1) * columns + a] = sums[n * columns + a] + row[n * columns + a];
      }
    }
  }

  // An action by the mean over groups [begin, end).
  space::ActionId draw(std::size_t begin, std::size_t end, Rng& rng) const {
    std::vector<double> cumulative(columns);
    double total = 0;
    for (std::size_t a = 0; a < columns; ++a) {
      // What is left by rounding of an action that nobody can take is none.
      const double p = sums[end * columns + a] - sums[begin * columns + a];
      cumulative[a] = total += p > kNothing ? p : 0.0;
    }
    const auto it =
        std::upper_bound(cumulative.begin(), cumulative.end(), rng.uniform() * cumulative.back());
    return space::ActionId(
        std::min<std::size_t>(static_cast<std::size_t>(it - cumulative.begin()), columns - 1));
  }

 private:
  static constexpr double kNothing = 1e-12;
};

// 1 to `most`, each power of two as likely as the next.
std::size_t by_powers_of_two(std::size_t most, Rng& rng) {
  const double power = std::exp2(rng.uniform() * std::log2(static_cast<double>(most) + 1));
  return std::clamp<std::size_t>(static_cast<std::size_t>(power), 1, most);
}

// Where `count` stretches that fill [0, groups) begin, and `groups` itself.
std::vector<std::size_t> cut(std::size_t groups, std::size_t count, Rng& rng) {
  std::vector<std::size_t> inside(groups - 1);
  for (std::size_t i = 0; i < inside.size(); ++i) inside[i] = i + 1;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    std::swap(inside[i], inside[i + rng.below(inside.size() - i)]);
  }
  std::vector<std::size_t> cuts(inside.begin(),
                                inside.begin() + static_cast<std::ptrdiff_t>(count - 1));
  cuts.push_back(0);
  cuts.push_back(groups);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

void set(Actions& actions, const DrawnRun& stretch) {
  std::fill(actions.begin() + static_cast<std::ptrdiff_t>(stretch.begin),
            actions.begin() + static_cast<std::ptrdiff_t>(stretch.end), stretch.action);
}

// One entry for each group that was drawn, one number for each stretch.
torch::Tensor indices(const std::vector<std::int64_t>& values) {
  return torch::tensor(values, torch::kInt64);
}

}  // namespace

Draws draw_runs(const torch::Tensor& log_probabilities, std::int64_t samples, const Rng& rng) {
  const SummedRows rows(log_probabilities);
  Draws draws;
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng own = rng.split(static_cast<std::uint64_t>(s));
    Actions actions(rows.groups);
    std::vector<DrawnRun> stretches;
    const std::vector<std::size_t> cuts = cut(rows.groups, by_powers_of_two(rows.groups, own), own);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      stretches.push_back({cuts[i], cuts[i + 1], rows.draw(cuts[i], cuts[i + 1], own)});
      set(actions, stretches.back());
    }
    draws.actions.push_back(std::move(actions));
    draws.stretches.push_back(std::move(stretches));
  }
  return draws;
}

Draws draw_edits(const torch::Tensor& log_probabilities, const Actions& incumbent,
                 std::int64_t samples, const Rng& rng) {
  const SummedRows rows(log_probabilities);
  EXPECT(incumbent.size() == rows.groups);
  Draws draws;
  for (std::int64_t s = 0; s < samples; ++s) {
    Rng own = rng.split(static_cast<std::uint64_t>(s));
    const std::size_t length = by_powers_of_two(rows.groups, own);
    const std::size_t begin = own.below(rows.groups - length + 1);
    const DrawnRun stretch{begin, begin + length, rows.draw(begin, begin + length, own)};
    draws.actions.push_back(incumbent);
    set(draws.actions.back(), stretch);
    draws.stretches.push_back({stretch});
  }
  return draws;
}

void append(Draws& draws, Draws more) {
  std::ranges::move(more.actions, std::back_inserter(draws.actions));
  std::ranges::move(more.stretches, std::back_inserter(draws.stretches));
}

torch::Tensor log_likelihood(const torch::Tensor& log_probabilities, const Draws& draws) {
  if (draws.stretches.empty()) {
    // log π of row s, group n is log_probabilities[n][a_sn]: gather over the transposed actions.
    return log_probabilities.gather(1, to_tensor(draws.actions).t()).mean(0);
  }
  std::vector<std::int64_t> entry, stretch_of_entry, sample_of_stretch;
  std::vector<double> groups_in, stretches_in;
  const std::int64_t columns = log_probabilities.size(1);
  for (std::size_t s = 0; s < draws.stretches.size(); ++s) {
    for (const DrawnRun& stretch : draws.stretches[s]) {
      for (std::size_t n = stretch.begin; n < stretch.end; ++n) {
        entry.push_back(static_cast<std::int64_t>(n) * columns + stretch.action.value());
        stretch_of_entry.push_back(static_cast<std::int64_t>(sample_of_stretch.size()));
      }
      sample_of_stretch.push_back(static_cast<std::int64_t>(s));
      groups_in.push_back(static_cast<double>(stretch.end - stretch.begin));
    }
    stretches_in.push_back(std::max(1.0, static_cast<double>(draws.stretches[s].size())));
  }
  const auto as_values = [&](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64).to(log_probabilities.dtype());
  };
  const auto p = log_probabilities.reshape({-1}).index_select(0, indices(entry)).exp();
  const auto mean = torch::zeros({static_cast<std::int64_t>(groups_in.size())}, p.options())
                        .index_add(0, indices(stretch_of_entry), p)
                        .div(as_values(groups_in));
  // An action may be all but impossible.
  constexpr double kLeast = 1e-30;
  return torch::zeros({static_cast<std::int64_t>(stretches_in.size())}, p.options())
      .index_add(0, indices(sample_of_stretch), mean.clamp_min(kLeast).log())
      .div(as_values(stretches_in));
}

}  // namespace heterog::learn

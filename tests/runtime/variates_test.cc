// Random numbers of every distribution: their formulas, their statistics, and that a slice has
// exactly what the whole has there.
#include "runtime/kernels/variates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "runtime/exec/slices.h"
#include "runtime/kernels/random.h"

namespace heterog::runtime {
namespace {

constexpr RandomStream kVariatesStream{7, 3, OpId(11)};
constexpr std::int64_t kCount = 200'000;
using Kind = Law::Kind;

// ---- the functions that the formulas are made of ----

// Off by so much of the larger of the value and `least`, at worst over x from `low` to `high`.
double worst(const std::function<double(double)>& ours,
             const std::function<long double(long double)>& exact, double low, double high,
             double least = 0) {
  double worst = 0;
  for (int i = 0; i <= 100'000; ++i) {
    const double x = low + (high - low) * i / 100'000;
    const long double is = exact(x);
    const long double off =
        std::abs(ours(x) - is) / std::max(std::abs(is), static_cast<long double>(least));
    worst = std::max(worst, static_cast<double>(off));
  }
  return worst;
}

// Of a few roundings, 1.1e-16 each.
TEST(Variates, FunctionsAreThoseOfTheLibraryToTheLastDigits) {
  const auto logarithm = [](double x) { return variates::logarithm(x); };
  const auto log_exact = [](long double x) { return std::log(x); };
  EXPECT_LT(worst(logarithm, log_exact, 1e-5, 1 - 1e-5), 1e-15);
  EXPECT_LT(worst(logarithm, log_exact, 1 - 1e-5, 1 - 0x1p-53), 1e-15);
  EXPECT_LT(worst(logarithm, log_exact, 0x1p-53, 1e-5), 1e-15);
  EXPECT_EQ(variates::logarithm(1.0), 0);
  EXPECT_LT(worst([](double x) { return variates::exponential_function(x); },
                  [](long double x) { return std::exp(x); }, -700, 700),
            1e-15);
  EXPECT_LT(worst([](double x) { return variates::root(x); },
                  [](long double x) { return std::sqrt(x); }, 1e-16, 80),
            1e-15);
  const long double turn = 2 * std::acos(-1.0L);
  EXPECT_LT(worst([](double u) { return variates::cosine_of_turn(u); },
                  [&](long double u) { return std::cos(turn * u); }, 0, 1, 1),
            1e-15);
  EXPECT_LT(worst([](double t) { return variates::tangent_of_half_turns(t); },
                  [&](long double t) { return std::tan(turn / 2 * t); }, -0.49999, 0.49999, 1e-3),
            2e-15);
}

// ---- statistics ----

at::Tensor whole_of(const Law& law, std::int64_t count = kCount) {
  return random_numbers(kVariatesStream, law, {count}, Cut{}, at::kCPU);
}

std::vector<double> sorted(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kDouble).flatten().contiguous();
  std::vector<double> list(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  std::sort(list.begin(), list.end());
  return list;
}

// The largest distance between the share of numbers up to x and the distribution function `below`
// there. `steps`: the function is constant between whole numbers, and is looked at there alone.
double kolmogorov(const std::vector<double>& list, const std::function<double(double)>& below,
                  bool steps) {
  double largest = 0;
  const auto count = static_cast<double>(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (steps && i + 1 < list.size() && list[i + 1] == list[i]) continue;
    const double expected = below(list[i]);
    largest = std::max(largest, std::abs(static_cast<double>(i + 1) / count - expected));
    if (!steps) largest = std::max(largest, std::abs(static_cast<double>(i) / count - expected));
  }
  return largest;
}

// Above it lies the distance of one of a billion samples at most: P(D > d) ≤ 2·e^(−2nd²)
// (Dvoretzky, Kiefer and Wolfowitz, 1956, with the constant of Massart, 1990).
double largest_distance(std::int64_t count) {
  return std::sqrt(std::log(2e9) / (2 * static_cast<double>(count)));
}

struct Expected {
  std::string name;
  Law law;
  std::function<double(double)> below;  // its distribution function
  double mean = 0;                      // NaN: it has none
  double variance = 0;                  // NaN: it has none, or one that converges slowly
  double kurtosis = 0;                  // fourth central moment / variance²
};

double below_normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

std::vector<Expected> laws() {
  const double kNone = std::nan("");
  return {{"uniform", {Kind::kUniform, 0, 1}, [](double x) { return x; }, 0.5, 1 / 12.0, 1.8},
          {"uniform float32",
           {Kind::kUniform, -1, 3, 24},
           [](double x) { return (x + 1) / 4; },
           1,
           16 / 12.0,
           1.8},
          {"normal", {Kind::kNormal, 0, 1}, below_normal, 0, 1, 3},
          {"shifted normal",
           {Kind::kNormal, 2, 3},
           [](double x) { return below_normal((x - 2) / 3); },
           2,
           9,
           3},
          {"exponential",
           {Kind::kExponential, 4},
           [](double x) { return 1 - std::exp(-4 * x); },
           0.25,
           1 / 16.0,
           9},
          {"log-normal",
           {Kind::kLogNormal, 0.5, 0.25},
           [](double x) { return below_normal((std::log(x) - 0.5) / 0.25); },
           std::exp(0.5 + 0.03125),
           (std::exp(0.0625) - 1) * std::exp(1 + 0.0625),
           4.1},
          {"geometric",
           {Kind::kGeometric, 0.3},
           [](double k) { return 1 - std::pow(0.7, k); },
           1 / 0.3,
           0.7 / 0.09,
           9.2},
          {"cauchy",
           {Kind::kCauchy, 1, 2},
           [](double x) { return 0.5 + std::atan((x - 1) / 2) / std::acos(-1.0); },
           kNone,
           kNone,
           0}};
}

TEST(RandomNumbers, HaveTheirDistribution) {
  for (const Expected& expected : laws()) {
    SCOPED_TRACE(expected.name);
    const at::Tensor values = whole_of(expected.law);
    EXPECT_TRUE(values.isfinite().all().item<bool>());
    const bool steps = expected.law.kind == Kind::kGeometric;
    EXPECT_LT(kolmogorov(sorted(values), expected.below, steps), largest_distance(kCount));
    if (std::isnan(expected.mean)) continue;
    // Six standard errors.
    const double error = std::sqrt(expected.variance / kCount);
    EXPECT_NEAR(values.mean().item<double>(), expected.mean, 6 * error);
    const double spread = std::sqrt((expected.kurtosis - 1) / kCount) * expected.variance;
    EXPECT_NEAR(values.var().item<double>(), expected.variance, 6 * spread);
  }
}

// A distance that is too large is seen: numbers of a mean that is 2 % of a deviation off.
TEST(RandomNumbers, OfAnotherDistributionAreFound) {
  const at::Tensor values = whole_of({Kind::kNormal, 0.02, 1});
  EXPECT_GT(kolmogorov(sorted(values), below_normal, false), largest_distance(kCount));
}

// Neighbours, numbers of other streams, and the two halves of a normal number.
TEST(RandomNumbers, AreIndependent) {
  const at::Tensor values = whole_of({Kind::kNormal, 0, 1});
  const double limit = 6 / std::sqrt(static_cast<double>(kCount));
  for (const std::int64_t apart : {1, 2, 64, 1000}) {
    const at::Tensor product =
        values.narrow(0, 0, kCount - apart) * values.narrow(0, apart, kCount - apart);
    EXPECT_NEAR(product.mean().item<double>(), 0, limit) << apart;
  }
  for (const RandomStream& other :
       {RandomStream{8, 3, OpId(11)}, {7, 4, OpId(11)}, {7, 3, OpId(12)}}) {
    const at::Tensor theirs = random_numbers(other, {Kind::kNormal, 0, 1}, {kCount}, {}, at::kCPU);
    EXPECT_NEAR((values * theirs).mean().item<double>(), 0, limit);
  }
  // The tails come from u, the signs from v.
  EXPECT_NEAR((values.square() * values.sign()).mean().item<double>(), 0,
              6 * std::sqrt(3.0 / kCount));
}

TEST(RandomNumbers, OfFewDigitsAreMultiplesBelowOne) {
  for (const int digits : {8, 11, 24, 53}) {
    const at::Tensor values = whole_of({Kind::kUniform, 0, 1, digits});
    const at::Tensor scaled = values * std::ldexp(1.0, digits);
    EXPECT_TRUE(scaled.eq(scaled.floor()).all().item<bool>()) << digits;
    EXPECT_LT(values.max().item<double>(), 1);
    EXPECT_GE(values.min().item<double>(), 0);
    if (digits == 8) {
      EXPECT_EQ(values.min().item<double>(), 0);
      EXPECT_EQ(values.max().item<double>(), 255.0 / 256);
    }
  }
}

TEST(RandomIntegers, AreEquallyOften) {
  const std::int64_t low = -3, count = 7;
  const at::Tensor values = random_integers(
      kVariatesStream, {low, static_cast<std::uint64_t>(count)}, {kCount}, {}, at::kCPU);
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto found = values.eq(low + i).sum().item<std::int64_t>();
    const double expected = static_cast<double>(kCount) / static_cast<double>(count);
    squares += (static_cast<double>(found) - expected) * (static_cast<double>(found) - expected) /
               expected;
  }
  EXPECT_LT(squares, 50) << "χ² of 6 degrees of freedom is above 50 once in 2·10⁸";
  EXPECT_EQ(values.lt(low).logical_or(values.ge(low + count)).sum().item<std::int64_t>(), 0);
}

TEST(RandomIntegers, ReachTheEndsOfTheirType) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const at::Tensor low =
      random_integers(kVariatesStream, {least, std::uint64_t{1} << 63}, {1000}, {}, at::kCPU);
  EXPECT_LT(low.max().item<std::int64_t>(), 0);
  EXPECT_LT(low.min().item<std::int64_t>(), least / 100 * 98);
  const at::Tensor one = random_integers(kVariatesStream, {5, 1}, {10}, {}, at::kCPU);
  EXPECT_TRUE(one.eq(5).all().item<bool>());
}

TEST(RandomOrder, HasEveryNumberOnceAnywhere) {
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    const at::Tensor order = random_order(kVariatesStream, count, at::kCPU);
    EXPECT_TRUE(std::get<0>(order.sort()).equal(at::arange(count, at::kLong))) << count;
  }
  // Of 3 numbers there are 6 orders, each as likely.
  std::vector<int> found(27, 0);
  const int times = 6000;
  for (int step = 0; step < times; ++step) {
    const at::Tensor order = random_order({1, step, OpId(2)}, 3, at::kCPU);
    const auto* at = order.data_ptr<std::int64_t>();
    ++found[static_cast<std::size_t>(at[0] * 9 + at[1] * 3 + at[2])];
  }
  int orders = 0;
  for (const int count : found) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, times / 6, 6 * std::sqrt(times * (1 / 6.0) * (5 / 6.0)));
  }
  EXPECT_EQ(orders, 6);
}

// ---- slices ----

// Along any dimension, also where it holds the batch inside (sequence first: 3 × batch).
using DrawSlice =
    std::function<at::Tensor(const std::vector<std::int64_t>& sizes, const Cut& cut, bool tensors)>;

void expect_slices_of_the_whole(const DrawSlice& draw) {
  const std::int64_t batch = 8;
  for (const auto& [dim, outer] : {std::pair{0, 1}, {1, 1}, {2, 1}, {0, 3}, {1, 3}}) {
    std::vector<std::int64_t> sizes = {5, 4, 2};
    sizes[static_cast<std::size_t>(dim)] = 2 * outer * batch;
    const at::Tensor whole = draw(sizes, Cut{}, false);
    EXPECT_TRUE(whole.equal(draw(sizes, Cut{}, true)));
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 5}, {7, 1}}) {
      const Cut cut{static_cast<std::uint8_t>(dim), outer, batch, begin, count};
      sizes[static_cast<std::size_t>(dim)] = 2 * outer * count;
      const at::Tensor slice = draw(sizes, cut, false);
      EXPECT_TRUE(slice.equal(cut_samples(whole, cut))) << dim << " " << outer << " " << begin;
      EXPECT_TRUE(slice.equal(draw(sizes, cut, true))) << "by tensors";
    }
  }
  for (const bool tensors : {false, true}) {
    EXPECT_EQ(draw({0, 3}, Cut{}, tensors).numel(), 0);
    EXPECT_EQ(draw({}, Cut{}, tensors).dim(), 0);
  }
}

TEST(RandomNumbers, OfASliceAreThoseOfTheWholeByWhateverMeans) {
  for (const Expected& expected : laws()) {
    SCOPED_TRACE(expected.name);
    expect_slices_of_the_whole([&](const auto& sizes, const Cut& cut, bool tensors) {
      return tensors
                 ? random_numbers_by_tensors(kVariatesStream, expected.law, sizes, cut, at::kCPU)
                 : random_numbers(kVariatesStream, expected.law, sizes, cut, at::kCPU);
    });
    // The rare branches too.
    EXPECT_TRUE(whole_of(expected.law)
                    .equal(random_numbers_by_tensors(kVariatesStream, expected.law, {kCount}, Cut{},
                                                     at::kCPU)));
  }
}

TEST(RandomIntegers, OfASliceAreThoseOfTheWholeByWhateverMeans) {
  for (const Range& range :
       {Range{0, 10}, {-5, 3}, {0, std::uint64_t{1} << 63}, {-1, 1'000'000'007}}) {
    expect_slices_of_the_whole([&](const auto& sizes, const Cut& cut, bool tensors) {
      return tensors ? random_integers_by_tensors(kVariatesStream, range, sizes, cut, at::kCPU)
                     : random_integers(kVariatesStream, range, sizes, cut, at::kCPU);
    });
  }
}

}  // namespace
}  // namespace heterog::runtime

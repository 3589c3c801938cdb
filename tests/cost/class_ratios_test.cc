// What is thought of operators that were not measured, by hand.
#include "cost/class_ratios.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/rng.h"

namespace heterog::cost {
namespace {

using cluster::OpClass;

double of(const std::vector<MeasuredRatio>& measured, OpClass op_class) {
  return class_log_ratios(measured)[static_cast<std::size_t>(op_class)];
}

TEST(ClassRatios, AreWhatWasBelievedWhereNothingWasMeasured) {
  EXPECT_EQ(of({}, OpClass::kMatMul), 0);
}

// One class with the mean R: w = n / (n + 1), m = w R / (w + 1), x = (n R + m) / (n + 1). Of one
// operator two of three equal variances are its class's and its type's, so that x = 2 R / 3.
TEST(ClassRatios, OfOneClassAreShrunkTheLessTheMoreWereMeasured) {
  const MeasuredRatio one{OpClass::kMatMul, 0.8};
  EXPECT_NEAR(of({one}, OpClass::kMatMul), 1.6 / 3, 1e-12);
  EXPECT_NEAR(of({one, one, one}, OpClass::kMatMul), (2.4 + 0.6 / 1.75) / 4, 1e-12);
  // Another class knows what the type is off by.
  EXPECT_NEAR(of({one, one, one}, OpClass::kSoftmax), 0.6 / 1.75, 1e-12);
}

// Sums 0.6 of two operators and -0.9 of one: w = 2/3 and 1/2, m = (0.2 - 0.45) / (7/6 + 1) =
// -1.5 / 13; the first class (0.6 + m) / 3, the second (-0.9 + m) / 2, any other m.
TEST(ClassRatios, AreShrunkTowardsTheirType) {
  const std::vector<MeasuredRatio> measured = {
      {OpClass::kMatMul, 0.1}, {OpClass::kPooling, -0.9}, {OpClass::kMatMul, 0.5}};
  EXPECT_NEAR(of(measured, OpClass::kMatMul), 2.1 / 13, 1e-12);
  EXPECT_NEAR(of(measured, OpClass::kPooling), -6.6 / 13, 1e-12);
  EXPECT_NEAR(of(measured, OpClass::kCopy), -1.5 / 13, 1e-12);
}

// Each in turn where the sum of squares of the header is least, until nothing moves.
std::array<double, cluster::kOpClassCount> by_descent(const std::vector<MeasuredRatio>& measured) {
  std::array<double, cluster::kOpClassCount> x{};
  double type = 0;
  for (int round = 0; round < 2000; ++round) {
    for (std::size_t at = 0; at < x.size(); ++at) {
      double sum = type, terms = 1;
      for (const MeasuredRatio& one : measured) {
        if (static_cast<std::size_t>(one.op_class) != at) continue;
        sum += one.log_ratio;
        ++terms;
      }
      x[at] = sum / terms;
    }
    double sum = 0;
    for (const double one : x) sum += one;
    type = sum / static_cast<double>(x.size() + 1);
  }
  return x;
}

TEST(ClassRatios, AreWhereTheSumOfSquaresIsLeast) {
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<MeasuredRatio> measured(1 + rng.below(30));
    for (MeasuredRatio& one : measured) {
      one = {static_cast<OpClass>(rng.below(cluster::kOpClassCount)), 2 * rng.uniform() - 1};
    }
    const auto expected = by_descent(measured);
    const auto found = class_log_ratios(measured);
    for (std::size_t at = 0; at < found.size(); ++at) EXPECT_NEAR(found[at], expected[at], 1e-9);
  }
}

}  // namespace
}  // namespace heterog::cost

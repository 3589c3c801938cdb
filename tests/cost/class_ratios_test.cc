// What is thought of operators that were not measured, by hand.
#include "cost/class_ratios.h"

#include <gtest/gtest.h>

#include <vector>

namespace heterog::cost {
namespace {

using cluster::OpClass;

double of(const std::vector<MeasuredRatio>& measured, OpClass op_class) {
  return class_log_ratios(measured)[static_cast<std::size_t>(op_class)];
}

TEST(ClassRatios, AreWhatWasBelievedWhereNothingWasMeasured) {
  EXPECT_EQ(of({}, OpClass::kMatMul), 0);
}

// One class with the mean R: m = R / 2, x = (n R + R / 2) / (n + 1).
TEST(ClassRatios, OfOneClassAreShrunkTheLessTheMoreWereMeasured) {
  const MeasuredRatio one{OpClass::kMatMul, 0.8};
  EXPECT_NEAR(of({one}, OpClass::kMatMul), 1.2 / 2, 1e-12);
  EXPECT_NEAR(of({one, one, one}, OpClass::kMatMul), 2.8 / 4, 1e-12);
  // Another class knows what the type is off by.
  EXPECT_NEAR(of({one, one, one}, OpClass::kSoftmax), 0.4, 1e-12);
}

// Means 0.3 (of 0.1 and 0.5) and -0.9: m = (0.3 - 0.9) / 3 = -0.2; the first class
// (2 · 0.3 - 0.2) / 3, the second (-0.9 - 0.2) / 2, any other m.
TEST(ClassRatios, AreShrunkTowardsTheirType) {
  const std::vector<MeasuredRatio> measured = {
      {OpClass::kMatMul, 0.1}, {OpClass::kPooling, -0.9}, {OpClass::kMatMul, 0.5}};
  EXPECT_NEAR(of(measured, OpClass::kMatMul), 0.4 / 3, 1e-12);
  EXPECT_NEAR(of(measured, OpClass::kPooling), -0.55, 1e-12);
  EXPECT_NEAR(of(measured, OpClass::kCopy), -0.2, 1e-12);
}

}  // namespace
}  // namespace heterog::cost

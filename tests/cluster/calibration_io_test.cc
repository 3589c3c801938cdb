// Reading fitted constants: what is borrowed, and what is refused.
#include "cluster/calibration_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_reader.h"

namespace heterog::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kProduct =
    R"({"share": 0.5, "tile_loss": 1, "fill": 2, "bandwidth_share": 0.25, "fixed_seconds": 3e-6,
        "winograd_share": 0.75, "stride_waste": 0.5, "join_seconds": 1e-6, "k_step": 32})";
constexpr const char* kTraffic = R"({"bandwidth_share": 0.8, "fixed_seconds": 4e-6})";

// A calibration whose products, traffic and depthwise entries read as given.
std::string calibration(const std::string& name, const std::string& product,
                        const std::string& traffic, const std::string& depthwise,
                        const std::string& more = "") {
  std::string text = R"({"name": ")" + name + R"(", "source": "a test")";
  for (Precision precision : {Precision::kFull, Precision::kHalf}) {
    for (int i = 0; i < kProductKindCount; ++i) {
      text += ", \"" + product_constants_name(static_cast<ProductKind>(i), precision) +
              "\": " + product;
    }
  }
  for (int i = 0; i < kTrafficKindCount; ++i) {
    text += ", \"" + std::string(traffic_kind_name(static_cast<TrafficKind>(i))) + "\": " + traffic;
  }
  return text + ", \"depthwise_convolution\": " + depthwise + more + "}";
}

CalibrationSet read(const std::string& text) {
  const Json json = parse_json("[" + text + "]", "c.json");
  return read_calibrations(JsonValue(json, "c.json").as_list());
}

std::string refusal_of_constants(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

const std::string kWhole = calibration("a", kProduct, kTraffic, R"({"share": 0.1})");

TEST(CalibrationFiles, HoldEveryConstant) {
  const Calibration a = read(kWhole).at("a");
  const ProductConstants product{0.5, 1, 2, 0.25, 3e-6, 0.75, 0.5, 1e-6, 32};
  EXPECT_EQ(a.products[0][0], product);
  // TF32 takes what half precision has where nothing else is said.
  EXPECT_EQ(a.products[static_cast<int>(Precision::kTf32)][1], product);
  EXPECT_EQ(a.traffic[3], (TrafficConstants{0.8, 4e-6, 0}));
  EXPECT_EQ(a.depthwise_share, 0.1);
}

TEST(CalibrationFiles, BorrowFromEarlierOnes) {
  const std::string other = calibration("b", "\"a\"", "\"a\"", "\"a\"");
  const CalibrationSet both = read(kWhole + "," + other);
  EXPECT_EQ(both.at("a"), both.at("b"));
  EXPECT_THAT(refusal_of_constants(other + "," + kWhole),
              AllOf(HasSubstr("[0].matmul"), HasSubstr("'a'"), HasSubstr("earlier")));
}

TEST(CalibrationFiles, AddToKnownOnes) {
  const CalibrationSet known = read(kWhole);
  const std::string less = R"({"bandwidth_share": 0.4, "fixed_seconds": 4e-6})";
  const Json json = parse_json("[" + calibration("b", "\"a\"", less, "\"a\"") + "," +
                                   calibration("a", "\"b\"", less, "\"b\"") + "]",
                               "c.json");
  const CalibrationSet both = read_calibrations(JsonValue(json, "c.json").as_list(), known);
  EXPECT_EQ(both.at("b").products[0][0], known.at("a").products[0][0]);
  EXPECT_EQ(both.at("b").traffic[0].bandwidth_share, 0.4);
  EXPECT_EQ(both.at("a"), both.at("b"));  // in the place of the known one
}

TEST(CalibrationFiles, RefuseWhatIsMissingUnknownOrOutOfRange) {
  EXPECT_EQ(refusal_of_constants(kWhole), "accepted");
  EXPECT_THAT(refusal_of_constants(kWhole + "," + kWhole), HasSubstr("'a' appears twice"));
  EXPECT_THAT(refusal_of_constants(R"({"name": "a"})"), HasSubstr("matmul"));
  EXPECT_THAT(refusal_of_constants(
                  calibration("a", kProduct, kTraffic, R"({"share": 0.1})", ", \"matmull\": 1")),
              HasSubstr("matmull"));
  EXPECT_THAT(
      refusal_of_constants(calibration("a", R"({"share": 0.5})", kTraffic, R"({"share": 0.1})")),
      HasSubstr("tile_loss"));
  EXPECT_THAT(
      refusal_of_constants(calibration(
          "a", kProduct, R"({"bandwidth_share": 0, "fixed_seconds": 0})", R"({"share": 0.1})")),
      HasSubstr("elementwise.bandwidth_share"));
  EXPECT_THAT(refusal_of_constants(calibration("a", kProduct, kTraffic, R"({"share": 1.5})")),
              HasSubstr("depthwise_convolution.share"));
}

Sustained sustained(const std::string& text) {
  const Json json = parse_json(text, "c.json");
  return read_sustained(JsonValue(json, "c.json"));
}

TEST(CalibrationFiles, SaySustainedPartsByKindAndPrecision) {
  EXPECT_EQ(sustained("{}"), Sustained());
  const Sustained s =
      sustained(R"({"matmul": 0.9, "matmul_half": 0.8, "convolution_tf32": 0.7, "traffic": 0.95})");
  EXPECT_EQ(s.matmul[static_cast<int>(Precision::kFull)], 0.9);
  EXPECT_EQ(s.matmul[static_cast<int>(Precision::kTf32)], 0.8);  // tensor cores, too
  EXPECT_EQ(s.convolution[static_cast<int>(Precision::kTf32)], 0.7);
  EXPECT_EQ(s.convolution[static_cast<int>(Precision::kHalf)], 1);
  EXPECT_EQ(s.traffic, 0.95);
  EXPECT_THROW(sustained(R"({"matmul": 0})"), Error);
  EXPECT_THROW(sustained(R"({"products": 0.9})"), Error);
}

}  // namespace
}  // namespace heterog::cluster

// Strict reading of fitted constants.
#include "cluster/calibration_io.h"

#include <set>

#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::cluster {
namespace {

// Ends that no fit reaches, to catch slips of the pen.
constexpr double kLeastShare = 1e-4;
constexpr double kMostShare = 1.5;
constexpr double kMaxFixedSeconds = 1e-2;
constexpr double kMaxElements = 1e5;
constexpr double kLeastSustained = 0.25;
constexpr double kMostSustained = 2;

ProductConstants read_product(const JsonValue& value) {
  JsonObject object(value);
  ProductConstants constants;
  constants.share = object.number("share", kLeastShare, 2);
  constants.tile_loss = object.number("tile_loss", 0, kMaxElements);
  constants.fill = object.number("fill", 0, kMaxElements);
  constants.bandwidth_share = object.number("bandwidth_share", kLeastShare, 1);
  constants.fixed_seconds = object.number("fixed_seconds", 0, kMaxFixedSeconds);
  constants.winograd_share = object.number_or("winograd_share", 0, 2, 0);
  constants.stride_waste = object.number_or("stride_waste", 0, 1, 0);
  constants.join_seconds = object.number_or("join_seconds", 0, kMaxFixedSeconds, 0);
  constants.k_step = object.number_or("k_step", 1, 1024, 1);
  object.finish();
  return constants;
}

TrafficConstants read_traffic(const JsonValue& value) {
  JsonObject object(value);
  TrafficConstants constants;
  // Above 1 where a second reading, which is counted, finds much of the first in a cache.
  constants.bandwidth_share = object.number("bandwidth_share", kLeastShare, kMostShare);
  constants.fixed_seconds = object.number("fixed_seconds", 0, kMaxFixedSeconds);
  constants.window_share = object.number_or("window_share", 0, 1, 0);
  object.finish();
  return constants;
}

// The calibration that an entry borrows from, nullptr where it has constants of its own.
const Calibration* lender(const JsonValue& value, const CalibrationSet& known) {
  if (!value.json().is_string()) return nullptr;
  const auto found = known.find(value.as_string());
  VALIDATE(found != known.end(),
           "{} names the calibration '{}'; it must be the name of an earlier one or an object of "
           "constants",
           value.where(), printable(value.as_string()));
  return &found->second;
}

Calibration read_calibration(JsonObject& object, const CalibrationSet& known) {
  Calibration calibration;
  // Half precision first: TF32 takes its constants where it has none.
  for (Precision precision : {Precision::kHalf, Precision::kFull, Precision::kTf32}) {
    const int p = static_cast<int>(precision), half = static_cast<int>(Precision::kHalf);
    for (int i = 0; i < kProductKindCount; ++i) {
      const std::string name = product_constants_name(static_cast<ProductKind>(i), precision);
      if (precision == Precision::kTf32 && !object.has(name)) {
        calibration.products[p][i] = calibration.products[half][i];
        continue;
      }
      const JsonValue value = object.required(name);
      const Calibration* from = lender(value, known);
      calibration.products[p][i] = from ? from->products[p][i] : read_product(value);
    }
  }
  for (int i = 0; i < kTrafficKindCount; ++i) {
    const JsonValue value = object.required(traffic_kind_name(static_cast<TrafficKind>(i)));
    const Calibration* from = lender(value, known);
    calibration.traffic[i] = from ? from->traffic[i] : read_traffic(value);
  }
  const JsonValue depthwise = object.required("depthwise_convolution");
  if (const Calibration* from = lender(depthwise, known)) {
    calibration.depthwise_share = from->depthwise_share;
  } else {
    JsonObject constants(depthwise);
    calibration.depthwise_share = constants.number("share", kLeastShare, 1);
    constants.finish();
  }
  return calibration;
}

}  // namespace

CalibrationSet read_calibrations(const std::vector<JsonValue>& list, CalibrationSet known) {
  std::set<std::string> own;
  for (const JsonValue& value : list) {
    JsonObject object(value);
    const std::string name = object.string("name");
    object.skip("source");
    known.insert_or_assign(name, read_calibration(object, known));
    VALIDATE(own.insert(name).second, "{}.name: '{}' appears twice; names must differ",
             value.where(), printable(name));
    object.finish();
  }
  return known;
}

Sustained read_sustained(const JsonValue& value) {
  JsonObject object(value);
  Sustained sustained;
  const auto read = [&](double(&shares)[kPrecisionCount], const std::string& name) {
    const int half = static_cast<int>(Precision::kHalf);
    const auto share = [&](const char* suffix, double absent) {
      return object.number_or(name + suffix, kLeastSustained, kMostSustained, absent);
    };
    shares[static_cast<int>(Precision::kFull)] = share("", 1);
    shares[half] = share("_half", 1);
    shares[static_cast<int>(Precision::kTf32)] = share("_tf32", shares[half]);
  };
  read(sustained.matmul, "matmul");
  read(sustained.convolution, "convolution");
  sustained.traffic = object.number_or("traffic", kLeastSustained, kMostSustained, 1);
  object.finish();
  return sustained;
}

}  // namespace heterog::cluster

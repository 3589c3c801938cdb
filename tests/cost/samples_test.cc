// How far the shipped constants are from measurements that no fit has seen.
#include "cost/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace heterog::cost {
namespace {

double median(std::vector<double> values) {
  EXPECT_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

class Samples : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    devices_ = new cluster::DeviceDatabase(cluster::read_devices("configs/devices.json"));
    samples_ = new std::vector<Sample>(read_samples("configs/calibration"));
  }
  static void TearDownTestSuite() {
    delete samples_;
    delete devices_;
  }
  static const cluster::DeviceType& type(const Sample& sample) {
    return devices_->at(sample.device);
  }
  static inline const cluster::DeviceDatabase* devices_ = nullptr;
  static inline const std::vector<Sample>* samples_ = nullptr;
};

struct Errors {
  std::vector<double> calibrated, roofline;  // |predicted / measured − 1|
};

// Median errors over the held-out rows of all devices: what scripts/calibrate.py table prints in
// its lines "all", and a tenth of that above it for another compiler's arithmetic.
TEST_F(Samples, ErrorsOnHeldOutRowsStayUnderTheMeasuredOnes) {
  const std::map<std::string, double> bars = {
      {"batch_norm", 0.123},
      {"convolution_forward", 0.086},
      {"convolution_forward_3x3", 0.208},
      {"convolution_forward_half", 0.177},
      {"convolution_forward_half_3x3", 0.090},
      {"convolution_input_gradient", 0.130},
      {"convolution_input_gradient_3x3", 0.111},
      {"convolution_input_gradient_half", 0.180},
      {"convolution_input_gradient_half_3x3", 0.135},
      {"convolution_weight_gradient", 0.208},
      {"convolution_weight_gradient_3x3", 0.244},
      {"convolution_weight_gradient_half", 0.242},
      {"convolution_weight_gradient_half_3x3", 0.121},
      {"depthwise_convolution", 0.234},
      {"elementwise", 0.023},
      {"layer_norm", 0.088},
      {"matmul", 0.120},
      {"matmul_half", 0.064},
      {"pooling", 0.405},
      {"pooling_backward", 0.270},
      {"softmax", 0.081},
  };
  std::map<std::string, Errors> groups;
  for (const Sample& sample : *samples_) {
    if (!sample.held_out) continue;
    Errors& errors = groups[sample.group];
    const auto error = [&](const CostModel& model) {
      return std::abs(predict(model, sample, type(sample)) / sample.seconds - 1);
    };
    errors.calibrated.push_back(error(CalibratedModel()));
    errors.roofline.push_back(error(RooflineModel()));
  }
  ASSERT_EQ(groups.size(), bars.size());
  for (const auto& [group, errors] : groups) {
    ASSERT_TRUE(bars.contains(group)) << group;
    EXPECT_LT(median(errors.calibrated), bars.at(group)) << group;
    EXPECT_LT(mean(errors.calibrated), mean(errors.roofline)) << group;
  }
}

// One speed a device is wrong: the gap between two cards differs between products and
// convolutions, and the model must show it.
TEST_F(Samples, CardsAreFurtherApartOnConvolutionsThanOnProducts) {
  const auto ratio = [&](const std::string& kind, const auto& seconds) {
    std::map<std::string, std::map<std::string, const Sample*>> shapes;
    for (const Sample& sample : *samples_) {
      if (sample.source != "deepbench" || !sample.constants.starts_with(kind)) continue;
      if (sample.constants.ends_with("half")) continue;
      shapes[sample.shape].emplace(sample.device, &sample);
    }
    std::vector<double> ratios;
    for (const auto& [shape, devices] : shapes) {
      const auto slow = devices.find("GTX-1080-Ti"), fast = devices.find("V100-SXM2-16GB");
      if (slow == devices.end() || fast == devices.end()) continue;
      ratios.push_back(seconds(*slow->second) / seconds(*fast->second));
    }
    EXPECT_GT(ratios.size(), 50u);
    return median(ratios);
  };
  const auto measured = [](const Sample& sample) { return sample.seconds; };
  const auto ours = [&](const Sample& sample) {
    return predict(CalibratedModel(), sample, type(sample));
  };
  EXPECT_NEAR(ratio("matmul", measured), 1.24, 0.02);
  EXPECT_NEAR(ratio("convolution", measured), 1.42, 0.03);
  EXPECT_NEAR(ratio("matmul", ours), ratio("matmul", measured), 0.1);
  EXPECT_NEAR(ratio("convolution", ours), ratio("convolution", measured), 0.1);
  EXPECT_GT(ratio("convolution", ours), 1.05 * ratio("matmul", ours));
}

TEST_F(Samples, OneRowInFiveIsHeldOut) {
  std::map<std::pair<std::string, std::string>, std::pair<int, int>> counts;
  for (const Sample& sample : *samples_) {
    auto& [all, held_out] = counts[{sample.device, sample.group}];
    ++all;
    held_out += sample.held_out ? 1 : 0;
    EXPECT_TRUE(devices_->contains(sample.device)) << sample.device;
  }
  for (const auto& [group, count] : counts) EXPECT_EQ(count.second, count.first / 5);
}

}  // namespace
}  // namespace heterog::cost

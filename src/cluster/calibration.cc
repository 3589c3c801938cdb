// Names of the kernels that are calibrated.
#include "cluster/calibration.h"

#include <array>
#include <cstddef>

namespace heterog::cluster {

std::string product_constants_name(ProductKind kind, Precision precision) {
  static constexpr std::array<std::string_view, kProductKindCount> kNames = {
      "matmul", "convolution_forward", "convolution_input_gradient", "convolution_weight_gradient"};
  static constexpr std::array<std::string_view, kPrecisionCount> kSuffixes = {"", "_tf32", "_half"};
  std::string name(kNames[static_cast<std::size_t>(kind)]);
  return name += kSuffixes[static_cast<std::size_t>(precision)];
}

std::string_view traffic_kind_name(TrafficKind kind) {
  static constexpr std::array<std::string_view, kTrafficKindCount> kNames = {
      "elementwise", "reduction", "batch_norm", "batch_norm_backward",
      "layer_norm",  "softmax",   "pooling",    "pooling_backward",
      "embedding",   "copy",      "optimizer"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace heterog::cluster

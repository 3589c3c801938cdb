// Predicts the measured rows, for scripts/calibrate/kernel_times.py: the formula stands in the
// library alone.
//
// usage: predict_samples DEVICES FOLDER, then commands on standard input:
//   rows                       one line a row: device, constants, group, source, shape, held out (0
//                              or 1), seconds measured, calibrated, of the roofline; then an empty
//                              line
//   layers                     one line a kind of layer: device, kind, pass, layers, seconds
//   measured
//                              and calibrated; then an empty line
//   try DEVICE CONSTANTS X…    seconds of the rows of that device and constants, in one line, with
//                              the constants replaced by X… in the order of cluster/calibration.h
#include <cstdio>
#include <iostream>
#include <sstream>

#include "cost/samples.h"

namespace heterog::cost {
namespace {

using cluster::Calibration;

void set_product(cluster::ProductConstants& constants, const std::vector<double>& values) {
  VALIDATE(values.size() == 9, "{} constants of a product; there are 9", values.size());
  constants = {values[0], values[1], values[2], values[3], values[4],
               values[5], values[6], values[7], values[8]};
}

void set_constants(Calibration& calibration, const std::string& name,
                   const std::vector<double>& values) {
  for (int p = 0; p < cluster::kPrecisionCount; ++p) {
    for (int i = 0; i < cluster::kProductKindCount; ++i) {
      if (name != cluster::product_constants_name(static_cast<cluster::ProductKind>(i),
                                                  static_cast<cluster::Precision>(p))) {
        continue;
      }
      return set_product(calibration.products[p][i], values);
    }
  }
  for (int i = 0; i < cluster::kTrafficKindCount; ++i) {
    if (name != cluster::traffic_kind_name(static_cast<cluster::TrafficKind>(i))) continue;
    VALIDATE(values.size() == 3, "{} constants of traffic; there are 3", values.size());
    calibration.traffic[i] = {values[0], values[1], values[2]};
    return;
  }
  VALIDATE(name == "depthwise_convolution" && values.size() == 1, "unknown constants '{}'", name);
  calibration.depthwise_share = values[0];
}

void run(const std::string& devices_path, const std::string& folder) {
  const cluster::DeviceDatabase devices = cluster::read_devices(devices_path);
  const std::vector<Sample> samples = read_samples(folder);
  const auto type_of = [&](const std::string& name) {
    const auto found = devices.find(name);
    VALIDATE(found != devices.end(), "{}: no device '{}'", devices_path, name);
    return found->second;
  };
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, device, name;
    words >> command >> device >> name;
    if (command == "rows") {
      for (const Sample& sample : samples) {
        const cluster::DeviceType type = type_of(sample.device);
        std::printf("%s %s %s %s %s %d %.9g %.9g %.9g\n", sample.device.c_str(),
                    sample.constants.c_str(), sample.group.c_str(), sample.source.c_str(),
                    sample.shape.c_str(), sample.held_out ? 1 : 0, sample.seconds,
                    predict(CalibratedModel(), sample, type),
                    predict(RooflineModel(), sample, type));
      }
    } else if (command == "layers") {
      for (const Layer& layer : read_layers(folder)) {
        std::printf("%s %s %lld %.9g %.9g\n", layer.device.c_str(), layer.kind.c_str(),
                    static_cast<long long>(layer.count), layer.seconds,
                    predict(CalibratedModel(), layer, type_of(layer.device)));
      }
    } else {
      VALIDATE(command == "try", "unknown command '{}'; there are rows, layers and try", command);
      std::vector<double> values;
      for (double value = 0; words >> value;) values.push_back(value);
      cluster::DeviceType type = type_of(device);
      if (!type.calibration) type.calibration.emplace();
      set_constants(*type.calibration, name, values);
      for (const Sample& sample : samples) {
        if (sample.device != device || sample.constants != name) continue;
        std::printf("%.9g ", predict(CalibratedModel(), sample, type));
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace heterog::cost

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: predict_samples DEVICES FOLDER\n");
    return 2;
  }
  try {
    heterog::cost::run(argv[1], argv[2]);
  } catch (const heterog::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}

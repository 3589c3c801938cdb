// Instances of a layout, by device.
#pragma once

#include <cstdint>
#include <vector>

#include "decide/layout.h"

namespace heterog::compiler {

// The slices of every layout, found by device. A device that stands in a layout several times has
// several instances; they are linked in the order of the layout:
//
//   for (std::uint32_t i = by_device.first(layout, device); i != InstancesByDevice::kNone;
//        i = by_device.next(layout, i))
class InstancesByDevice {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  InstancesByDevice(const decide::Layout& layout, std::size_t devices);
  std::uint32_t first(decide::LayoutId layout, DeviceId device) const {
    return first_[layout.value() * devices_ + device.value()];
  }
  std::uint32_t next(decide::LayoutId layout, std::uint32_t instance) const {
    return next_[begin_[layout] + instance];
  }
  // Samples of all instances of the layout on the device together.
  std::int64_t samples(decide::LayoutId layout, DeviceId device) const {
    return samples_[layout.value() * devices_ + device.value()];
  }

 private:
  std::size_t devices_;
  std::vector<std::uint32_t> first_;                 // [layout][device]
  std::vector<std::int64_t> samples_;                // [layout][device]
  IdVector<decide::LayoutId, std::uint32_t> begin_;  // of its instances in next_
  std::vector<std::uint32_t> next_;
};

}  // namespace heterog::compiler

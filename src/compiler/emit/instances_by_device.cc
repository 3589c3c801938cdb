// Links the instances from the last to the first.
#include "compiler/emit/instances_by_device.h"

namespace heterog::compiler {

InstancesByDevice::InstancesByDevice(const decide::Layout& layout, std::size_t devices)
    : devices_(devices),
      first_(layout.slices.size() * devices, kNone),
      samples_(layout.slices.size() * devices, 0) {
  for (decide::LayoutId id : id_range<decide::LayoutId>(layout.slices.size())) {
    const auto& slices = layout.slices[id];
    begin_.push_back(static_cast<std::uint32_t>(next_.size()));
    next_.resize(next_.size() + slices.size(), kNone);
    for (std::size_t i = slices.size(); i-- > 0;) {
      const std::size_t cell = id.value() * devices_ + slices[i].device.value();
      next_[begin_[id] + i] = first_[cell];
      first_[cell] = static_cast<std::uint32_t>(i);
      samples_[cell] += slices[i].size();
    }
  }
}

}  // namespace heterog::compiler

// Lists by tensor and device, each linked from its latest entry.
#include "compiler/emit/whereabouts.h"

namespace heterog::compiler {

Whereabouts::Whereabouts(const cost::Problem& problem, const decide::Layout& layout,
                         std::size_t devices)
    : problem_(problem),
      layout_(layout),
      devices_(devices),
      instances_by_device_(layout, devices_),
      first_task_(problem.graph->op_count()),
      first_buffer_(problem.graph->tensor_count()),
      buffers_per_instance_(problem.graph->op_count(), 0),
      latest_piece_(problem.graph->tensor_count() * devices_, kNone),
      total_(problem.graph->tensor_count(), kNone),
      resident_(problem.graph->tensor_count() * devices_, 0),
      latest_reader_(problem.graph->tensor_count() * devices_, kNone) {
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = layout.home(parameter);
    const Bytes whole = problem.graph->bytes(parameter, 1);
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      // A host that serves rows has these alone.
      const bool in_part = home.by_rows() && (home.gathered() || i >= home.device_count());
      keep(parameter, home.replicas[i], in_part ? decide::row_bytes(home, i, whole) : whole);
    }
  }
  for (TensorId tensor : layout.gathered) {
    const decide::ParameterHome& home = layout.home(tensor);
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      keep(tensor, home.replicas[i], decide::row_bytes(home, i, problem.graph->bytes(tensor, 1)));
    }
  }
}

void Whereabouts::read_for(UnitId unit) {
  reader_ = unit;
  if (!unit.valid() || !again_for_.empty()) return;
  again_for_.resize(first_task_.size());
  again_task_.resize(first_task_.size());
  again_buffer_.resize(first_buffer_.size());
}

std::vector<Location> Whereabouts::instances(TensorId base, OpId producer) const {
  std::vector<Location> locations;
  const Made all = made(base, producer);
  const auto slices = layout_.op_slices(producer);
  locations.reserve(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const double share =
        static_cast<double>(slices[i].size()) / static_cast<double>(problem_.batch);
    locations.push_back({slices[i].device, all.of(i), share});
  }
  return locations;
}

void Whereabouts::add_piece(TensorId tensor, DeviceId device, std::int64_t begin, std::int64_t end,
                            const Source& source) {
  std::uint32_t& latest = latest_piece_[cell(tensor, device)];
  pieces_.push_back({begin, end, source, latest});
  latest = static_cast<std::uint32_t>(pieces_.size() - 1);
}

void Whereabouts::set_total(TensorId tensor, std::vector<Location> locations) {
  total_[tensor] = static_cast<std::uint32_t>(totals_.size());
  totals_.push_back(std::move(locations));
}

std::vector<DeviceId> Whereabouts::keepers(TensorId tensor) const {
  std::vector<DeviceId> devices;
  for (DeviceId device : id_range<DeviceId>(devices_)) {
    if (resident(tensor, device) > 0) devices.push_back(device);
  }
  return devices;
}

void Whereabouts::note_reader(TensorId tensor, DeviceId device, TaskId reader) {
  if (!problem_.folded->updater[tensor].valid()) return;
  std::uint32_t& latest = latest_reader_[cell(tensor, device)];
  readers_.emplace_back(reader, latest);
  latest = static_cast<std::uint32_t>(readers_.size() - 1);
}

}  // namespace heterog::compiler

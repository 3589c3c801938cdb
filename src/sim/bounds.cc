// The longest chain, sums by resource, and what one resource at a time says.
#include "sim/bounds.h"

#include <algorithm>
#include <vector>

#include "sim/one_machine.h"

namespace heterog::sim {

Nanoseconds Bounds::step() const {
  return std::max({chain, stream, link, collectives, one_machine, two_machines});
}

Bounds bounds(const compiler::Plan& plan) {
  Bounds bounds;
  for (Nanoseconds rank : plan.rank) bounds.chain = std::max(bounds.chain, rank);
  std::vector<Nanoseconds> load(plan.resource_count(), 0);
  for (TaskId task : plan.task_ids()) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      load[hold.resource.value()] += hold.duration;
    }
  }
  const auto load_of = [&](ResourceId resource) { return load[resource.value()]; };
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    bounds.stream = std::max(bounds.stream, load_of(plan.compute_stream(device)));
    bounds.collectives = std::max(bounds.collectives, load_of(plan.collective_channel(device)));
  }
  for (LinkId link : id_range<LinkId>(plan.link_count)) {
    bounds.link = std::max(bounds.link, load_of(plan.link(link)));
  }
  bounds.collectives = std::max(bounds.collectives, load_of(plan.all_collectives()));
  const Window window = windows(plan);
  bounds.one_machine = std::max(one_machine_bound(plan, window), slowed_stream_bound(plan, window));
  bounds.two_machines = two_machine_bound(plan, window);
  return bounds;
}

}  // namespace heterog::sim

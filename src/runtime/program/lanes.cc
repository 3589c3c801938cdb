#include "runtime/program/lanes.h"

#include <algorithm>

namespace heterog::runtime {
namespace {

// Peers that have come together, by the first of them.
class Together {
 public:
  explicit Together(const cluster::Cluster& cluster) : before_(cluster.place_count()) {
    for (DeviceId peer : cluster.place_ids()) before_[peer] = peer;
  }
  DeviceId first_of(DeviceId peer) {
    while (before_[peer] != peer) peer = before_[peer] = before_[before_[peer]];
    return peer;
  }
  void join(DeviceId a, DeviceId b) {
    a = first_of(a);
    b = first_of(b);
    before_[std::max(a, b)] = std::min(a, b);
  }

 private:
  IdVector<DeviceId, DeviceId> before_;
};

}  // namespace

IdVector<DeviceId, std::uint32_t> lanes_of_peers(const cluster::Cluster& cluster, DeviceId device,
                                                 Way way) {
  Together together(cluster);
  IdVector<LinkId, DeviceId> first_over(cluster.link_count());
  for (DeviceId peer : cluster.place_ids()) {
    if (peer == device) continue;
    const cluster::Route& route =
        way == Way::kTo ? cluster.route(device, peer) : cluster.route(peer, device);
    if (route.cap_bytes_per_second > 0) continue;
    for (LinkId link : route.links) {
      if (first_over[link].valid()) together.join(first_over[link], peer);
      first_over[link] = peer;
    }
  }
  IdVector<DeviceId, std::uint32_t> lanes(cluster.place_count(), 0);
  std::uint32_t count = 0;
  for (DeviceId peer : cluster.place_ids()) {
    if (peer == device) continue;
    const DeviceId first = together.first_of(peer);
    lanes[peer] = first == peer ? count++ : lanes[first];
  }
  return lanes;
}

}  // namespace heterog::runtime

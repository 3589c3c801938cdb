// A copy of a cluster with some links made faster.
#include "cluster/cluster.h"

namespace heterog::cluster {

Cluster with_faster_links(const Cluster& cluster, std::span<const LinkId> links, double factor) {
  Cluster faster = cluster;
  for (LinkId link : links) faster.links_[link].bytes_per_second *= factor;
  for (Route& route : faster.routes_) {
    if (route.links.empty()) continue;  // of a device to itself
    const auto place = static_cast<std::size_t>(route.links.data() - cluster.route_links_.data());
    route.links = {faster.route_links_.data() + place, route.links.size()};
  }
  return faster;
}

}  // namespace heterog::cluster

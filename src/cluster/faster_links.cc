// Copies of a cluster with links of other bandwidths.
#include "base/check.h"
#include "cluster/cluster.h"

namespace heterog::cluster {

Cluster with_scaled_links(const Cluster& cluster, const IdVector<LinkId, double>& factors) {
  EXPECT(factors.size() == cluster.link_count());
  Cluster scaled = cluster;
  for (LinkId link : id_range<LinkId>(cluster.link_count())) {
    scaled.links_[link].bytes_per_second *= factors[link];
  }
  for (Route& route : scaled.routes_) {
    if (route.links.empty()) continue;  // of a device to itself
    const auto place = static_cast<std::size_t>(route.links.data() - cluster.route_links_.data());
    route.links = {scaled.route_links_.data() + place, route.links.size()};
    if (cluster.is_connection(route.links.back())) {
      route.cap_bytes_per_second *= factors[route.links.back()];
    }
  }
  return scaled;
}

Cluster with_faster_links(const Cluster& cluster, std::span<const LinkId> links, double factor) {
  IdVector<LinkId, double> factors(cluster.link_count(), 1);
  for (LinkId link : links) factors[link] = factor;
  return with_scaled_links(cluster, factors);
}

}  // namespace heterog::cluster

// Lists parts of the terms.
#include "launch/terms.h"

namespace heterog::launch {

std::vector<std::string> device_names(const JobTerms& terms) {
  std::vector<std::string> names;
  for (const JobTerms::Rank& rank : terms.ranks) names.push_back(rank.device);
  return names;
}

std::string rank_type(const cluster::Cluster& cluster, DeviceId rank) {
  return cluster.is_host(rank) ? "CPU" : cluster.type_of(rank).name;
}

}  // namespace heterog::launch

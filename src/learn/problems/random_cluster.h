// Clusters to train on, drawn at random.
#pragma once

#include <cstdint>
#include <string>

#include "base/rng.h"
#include "cluster/cluster_io.h"

namespace heterog::learn {

// 2 to `most_devices` devices of one to three models, in machines of 1, 2, 4 or 8, linked within by
// PCIe or NVLink and to each other by 1 GbE to 100 Gb/s. Where more than 64 are allowed, half of
// the clusters have 64 or more; in each half the logarithm of the number is even. In three of four
// clusters the machines of a model are alike, as they are bought; the other ones have grown. The
// same generator gives the same cluster.
cluster::Cluster random_cluster(const std::string& name, std::int64_t most_devices, Rng rng,
                                const cluster::DeviceDatabase& devices,
                                const cluster::LinkDatabase& links);

}  // namespace heterog::learn

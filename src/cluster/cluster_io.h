// Reading cluster files and the device data base (docs/formats.md).
#pragma once

#include <map>
#include <string>

#include "cluster/cluster.h"

namespace heterog::cluster {

using DeviceDatabase = std::map<std::string, DeviceType>;

// configs/devices.json.
DeviceDatabase read_devices(const std::string& path);
DeviceDatabase parse_devices(const std::string& text, const std::string& source);

// A cluster file names devices of the data base. Throws an input error naming file and field.
Cluster read_cluster(const std::string& path, const DeviceDatabase& devices);
Cluster parse_cluster(const std::string& text, const std::string& source,
                      const DeviceDatabase& devices);

// Reads the cluster with the data base found beside it (the nearest devices.json in the cluster
// file's folder or the ones above), else the one that is installed with the program.
Cluster load_cluster(const std::string& path);

}  // namespace heterog::cluster

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
// The devices of both. Those of `path` may name shares and constants of either, and replace those
// of `shipped` that have their names.
DeviceDatabase read_devices_over(const std::string& shipped, const std::string& path);

// A kind of link, from configs/links.json.
struct LinkKind {
  double bytes_per_second = 0;  // each direction, as achieved by large messages
  double latency_seconds = 0;   // of a hop; of a network card: its half of one
  double launch_seconds = 0;
  bool feeds_nic = false;            // of a fabric
  int transfer_multiprocessors = 0;  // of a network card
};
using LinkDatabase = std::map<std::string, LinkKind>;

// configs/links.json.
LinkDatabase read_links(const std::string& path);
LinkDatabase parse_links(const std::string& text, const std::string& source);

// A cluster file names devices and, where it likes, links of the data bases. Throws an input error
// naming file and field.
Cluster read_cluster(const std::string& path, const DeviceDatabase& devices,
                     const LinkDatabase& links = {});
Cluster parse_cluster(const std::string& text, const std::string& source,
                      const DeviceDatabase& devices, const LinkDatabase& links = {});

// A file of the project's configs/: in a folder configs/ above the program or the library, else
// where it was built.
std::string installed_config(const std::string& name);

// The devices that hold for a file at `path`: those that are installed, and over them those of the
// nearest devices.json in its folder or the ones above.
DeviceDatabase devices_for(const std::string& path);

// Reads the cluster with the data bases that are installed with the program, and over them those
// found beside it: the nearest devices.json and links.json in the cluster file's folder or the ones
// above. A cluster that is not there may be one of the project's, by its name
// (base/own_file.h).
Cluster load_cluster(const std::string& given);

}  // namespace heterog::cluster

// Bytes over each link, by the formulas of how a plan moves them, without its tasks.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace heterog::compiler {

class LinkBytes {
 public:
  explicit LinkBytes(const cluster::Cluster& cluster);

  // Nothing, to the device itself.
  void send(DeviceId from, DeviceId to, Bytes bytes);
  // Once round the ring: over every hop, `share` of the bytes.
  void ring(const std::vector<DeviceId>& devices, double share, Bytes bytes);
  void all_reduce(std::vector<DeviceId> devices, Bytes bytes);
  // Pushes, or pulls on the same ways back: one between the server and each machine, by the device
  // whose turn it is, and one between that device and each other of its machine.
  void to_server(const std::vector<DeviceId>& devices, DeviceId server, Bytes bytes, bool back);

  const IdVector<LinkId, double>& all() const { return bytes_; }
  // How far a plan may be off: collectives hold links for whole nanoseconds.
  const IdVector<LinkId, double>& rounding() const { return rounding_; }

 private:
  void cross(DeviceId from, DeviceId to, double bytes);  // as a part of a collective

  const cluster::Cluster& cluster_;
  IdVector<LinkId, double> bytes_, rounding_;
};

}  // namespace heterog::compiler

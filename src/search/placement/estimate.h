// What a placement is believed to take while it is made: devices that do one thing after another,
// and what nodes wait for.
#pragma once

#include <utility>
#include <vector>

#include "search/placement/placement_graph.h"

namespace heterog::search {

// What is assumed of links.
enum class LinkUse : std::uint8_t {
  kFree,    // every transfer at once and by itself, as the papers have it
  kQueued,  // a link carries one after the other (decision 7), in the order in which nodes are put
};

struct Interval {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// When a device is busy. What touches is one interval, so that a device without gaps has one.
class BusyTimes {
 public:
  // The earliest begin, at `ready` or later, of a gap of at least `duration`.
  Nanoseconds first_gap(Nanoseconds ready, Nanoseconds duration) const;
  void take(Interval interval);  // which has to be a gap
  Nanoseconds end() const { return busy_.empty() ? 0 : busy_.back().end; }

 private:
  std::vector<Interval> busy_;  // ascending
};

// Nodes are put one after the other, each after all that it reads.
class Estimate {
 public:
  Estimate(const PlacementGraph& graph, LinkUse links, std::vector<Bytes> capacity);

  // When the node could run there at the earliest: between what runs there already if it fits in,
  // or (`behind`) behind all of it.
  Interval when(NodeId node, DeviceId device, bool behind = false);
  void put(NodeId node, DeviceId device, bool behind = false);

  // Where the node's set is; invalid if none of it has been put.
  DeviceId held_at(NodeId node) const { return device_of_set_[graph_.set_of[node]]; }
  // What the node takes of a device's memory for as long as the step lasts: all of its set with the
  // first node.
  Bytes bytes(NodeId node) const;
  bool fits(NodeId node, DeviceId device) const { return bytes(node) <= left_[device.value()]; }
  Bytes left(DeviceId device) const { return left_[device.value()]; }
  DeviceId emptiest() const;  // by bytes that are left (ties: the lowest id)

  const Placement& placement() const { return device_; }
  Interval interval(NodeId node) const { return interval_[node]; }
  Nanoseconds finish() const;
  // Every node, in the order in which they start (ties: by number).
  std::vector<NodeId> started() const;

 private:
  Nanoseconds ready(NodeId node, DeviceId device, bool commit);
  Interval from(Nanoseconds ready, NodeId node, DeviceId device, bool behind) const;

  const PlacementGraph& graph_;
  LinkUse links_;
  std::vector<Bytes> left_;
  std::vector<BusyTimes> busy_;
  Placement device_;
  IdVector<NodeId, Interval> interval_;
  IdVector<SetId, DeviceId> device_of_set_;
  IdVector<ValueId, std::vector<std::pair<DeviceId, Nanoseconds>>> arrived_;
  IdVector<LinkId, Nanoseconds> link_free_;
};

// Memory of each device for what nodes keep: what it has, without its reserve and room for what one
// node reads and writes.
std::vector<Bytes> capacities(const PlacementGraph& graph);

}  // namespace heterog::search

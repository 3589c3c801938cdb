// What a move would change, by formula: computation of each device, aggregation, what moves between
// groups, memory. Microseconds, where a simulation takes a hundred times as long.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "planner/candidate.h"
#include "space/group_summary.h"

namespace heterog::planner {

// Sums over the groups; seconds, where nothing else is said.
struct RoughStep {
  IdVector<DeviceId, double> compute;  // of each device
  IdVector<DeviceId, double> bytes;    // parameter state and activations of each device
  double chain = 0;      // of the slowest replica of each group, one group after another
  double reduces = 0;    // all-reduces, one after another
  double servers = 0;    // pushes to and pulls from parameter servers, one parameter after another
  double late_sync = 0;  // of both, those of early groups counting most: they end last
  double moving = 0;     // data between groups with other devices or slices
  double seams = 0;      // neighbours in topological order with other replicas or sync
  double lone = 0;       // part of the computation that is on one device
};

// A move's changes to these sums, and what it is about.
struct RoughChange {
  RoughStep change;
  std::vector<GroupId> groups;  // that get other replicas, sync or recomputation; ascending
  double time = 0, parameters = 0, activations = 0;  // parts of the model that these groups are
  double middle = 0;          // of these groups in the line of all, by time; 0 to 1
  double devices_before = 0;  // part of the cluster's that a changed group is on, mean
  double devices_after = 0;
  double moved_samples = 0;  // part of the batch that goes to other devices, by time
  bool like_left = false;    // the group before the first has the same replicas afterwards
  bool like_right = false;
  double to_reduce = 0, to_server = 0;  // part of their parameters that changes to either sync
};

// Of one problem, which has to outlive it; what it learns of sets of devices it keeps. For one
// thread.
class MoveEstimates {
 public:
  explicit MoveEstimates(const cost::Problem& problem);
  // Takes the incumbent that the moves are from. It has to live until the next.
  void begin(const Incumbent& from);
  const RoughStep& incumbent() const { return incumbent_; }
  RoughChange change(const Move& move);
  const cost::Problem& problem() const { return problem_; }

 private:
  struct Group {
    // Seconds on s > 0 samples: fixed + slope · s, by type of device.
    IdVector<DeviceTypeId, double> fixed, slope;
    double parameters = 0, parameter_bytes = 0, state_bytes = 0, activation_bytes = 0;
    double alone_bytes = 0;     // of each parameter, times the part of all bytes that it is
    double begin = 0, end = 0;  // of the line of all groups by time, 0 to 1
    std::vector<std::pair<GroupId, double>> neighbours;  // bytes that move to or from them
  };
  // Seconds for sums of gradients on a set of devices.
  struct Sync {
    double reduce_fixed = 0, reduce_per_byte = 0;
    double server_fixed = 0, server_per_byte = 0;  // spread over servers
    double alone_per_byte = 0;                     // at one server
  };
  struct Slices {
    std::vector<compiler::Slice> slices;
    IdVector<DeviceId, std::pair<double, double>> part;  // of the batch, of each device
    const Sync* sync = nullptr;
    std::vector<double> movable;  // seconds a byte to and from other entries; below 0: not known
  };
  double seconds(const Group& group, const compiler::Slice& slice) const;
  const Sync& sync_of(const std::vector<compiler::Slice>& slices);
  std::size_t add_slices(const Replicas& replicas);
  double seconds_per_byte(std::size_t from, std::size_t to);
  double moving_seconds(const Slices& from, const Slices& to) const;
  // Adds what a group takes with these slices, times `sign`.
  void add(GroupId group, std::size_t slices, compiler::SyncMethod sync, double sign,
           RoughStep& sum) const;

  const cost::Problem& problem_;
  IdVector<GroupId, Group> groups_;
  double parameter_bytes_ = 0, activation_bytes_ = 0;
  IdVector<DeviceId, double> inside_;    // seconds a byte, slowest within the device's machine
  IdVector<MachineId, double> outside_;  // slowest to other machines
  std::map<std::vector<DeviceId>, Sync> syncs_;
  const Incumbent* from_ = nullptr;
  RoughStep incumbent_;
  std::vector<Slices> slices_;  // of the incumbent's entries, then of a move's targets
  IdVector<GroupId, std::size_t> before_, after_;  // entry of each group
};

}  // namespace heterog::planner

// Sums over a problem that the feature table reads: folded op graph, group totals, estimates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cost/problem.h"

namespace heterog::gnn {

// HeteroG's four ways to replicate, in the order of the action space, after the single devices.
inline constexpr int kReplicatedActions = 4;  // even PS, even AR, proportional PS, proportional AR

// A flow of data between two ops that are not aliases (aliases folded into their consumers).
struct OpEdge {
  std::uint32_t source = 0;  // node index
  std::uint32_t target = 0;
  Bytes bytes = 0;  // that the target reads, at the whole batch
};

struct GroupTotals {
  std::int64_t ops = 0;
  double mean_seconds = 0;     // on the whole batch, averaged over devices
  double forward_seconds = 0;  // of which forward
  double whole_seconds = 0;    // of which ops that cannot run on a slice
  Bytes parameter_bytes = 0;
  Bytes state_bytes = 0;       // parameters, their gradients and optimizer state
  Bytes activation_bytes = 0;  // made by forward ops and read by backward ops, at the whole batch
  Bytes bytes_in = 0;          // from other groups
  Bytes bytes_out = 0;         // to other groups
  double all_reduce_seconds = 0;        // of its gradients over every device, one after another
  double parameter_server_seconds = 0;  // push to and pull from the best single server
};

// What one action means for one group, estimated without simulation.
struct ActionEstimate {
  double compute_seconds = 0;   // of the slowest replica
  double sync_seconds = 0;      // gradients; 0 for a single device
  double boundary_seconds = 0;  // data from and to other groups, if those were elsewhere
  double state_share = 0;       // parameter state over the capacity of the tightest device
  double activation_share = 0;
  double model_share = 0;  // the same of the whole model under this action
};

// Everything is in seconds and bytes; normalising is the table's business.
struct FeatureContext {
  explicit FeatureContext(const cost::Problem& problem);

  const cost::Problem& problem;
  std::vector<OpId> nodes;             // ops that are not aliases, ascending
  std::vector<std::uint32_t> node_of;  // by op; aliases: of the op that makes their base
  std::vector<OpEdge> edges;           // ascending (target, source), each pair once

  // By node.
  std::vector<Bytes> bytes_in, bytes_out, parameter_bytes_in;
  std::vector<std::uint32_t> readers, sources;

  std::vector<GroupTotals> groups;
  std::vector<ActionEstimate> actions;  // [group][action]
  int action_count = 0;
  const ActionEstimate& action(GroupId group, int a) const {
    return actions[group.value() * action_count + a];
  }
  // Least of compute and of compute + sync over the actions of a group.
  std::vector<double> least_compute_seconds, least_total_seconds;

  // Where a group begins and ends when groups are laid end to end, as shares of the model's memory
  // and of its time; the same for devices, laid end to end by capacity and by speed.
  std::vector<std::array<double, 2>> group_memory_span, group_time_span;
  std::vector<std::array<double, 2>> device_memory_span, device_speed_span;

  // Of the model and the cluster.
  double total_seconds = 0;  // Σ mean seconds
  double total_even_seconds = 0;
  Bytes total_state_bytes = 0, total_activation_bytes = 0;
  double mean_seconds_per_byte = 0, mean_latency_seconds = 0;  // over ordered pairs of devices
  std::vector<double> device_seconds_per_byte;                 // mean over the other devices
  std::vector<double> device_seconds;                          // the whole model on this device
  std::vector<double> device_capacity;                         // memory − reserve, bytes
  double fastest_seconds = 0, slowest_seconds = 0, largest_capacity = 0;
};

}  // namespace heterog::gnn

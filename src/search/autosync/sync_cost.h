// What AutoSync's formulas say that a point costs, and the features that rankers see (§2, §3).
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "search/autosync/sync_space.h"

namespace heterog::search {

// Features of a point, all but the last three in seconds: of the same meaning on every model and
// cluster.
inline constexpr std::array<std::string_view, 16> kSyncFeatures = {
    "computation",            // of the slowest device, under even shares
    "server transfer, most",  // eq. 2's network transfer of a server, both ways
    "server transfer, mean",
    "server overhead, most",  // eq. 2's network overhead
    "server kernels",         // eq. 2's constants, over all parts
    "collective transfer",    // eq. 3's network transfer
    "collective overhead",    // eq. 3's network overhead
    "collective kernels",     // eq. 3's constants
    "server transfer, late",  // of gradients that become ready late: times their place, from 0 to 1
    "collective transfer, late",
    "largest part",  // the longest transfer of one part to its server
    "sharded transfer",
    "above computation",  // of synchronisation, what is longer than computation
    "queued ranks",       // 1: tasks start in this order
    "fifo",
    "parts",  // of a served variable, in the mean
};
using SyncFeatures = std::array<double, kSyncFeatures.size()>;

// What stays the same over all points of a space.
struct SyncTimes {
  explicit SyncTimes(const SyncSpace& space);
  double computation = 0;           // seconds
  double ring_rate = 0;             // bytes a second of the slowest hop between neighbours
  double overhead = 0, kernel = 0;  // seconds of φ and δ
  std::size_t devices = 0;
  // By server: seconds a byte to all other machines, and how many these are.
  IdVector<DeviceId, double> seconds_per_byte;
  IdVector<DeviceId, double> machines;
};

SyncFeatures sync_features(const SyncSpace& space, const SyncTimes& times, const SyncPoint& point);
// The same of each variable for itself, as rankers see it that read the model op by op: eq. 2's or
// 3's terms in seconds, its bytes and those of its collective, and what was decided.
inline constexpr std::array<std::string_view, 9> kVariableFeatures = {
    "transfer", "overhead", "kernels", "bytes", "place", "served", "sharded", "parts", "group"};
using VariableFeatures = std::array<double, kVariableFeatures.size()>;
std::vector<VariableFeatures> variable_features(const SyncSpace& space, const SyncTimes& times,
                                                const SyncPoint& point);
// T = max(T_comp, T_sync) (eq. 1) with T_sync of the busiest server (eq. 2) and all collectives
// (eq. 3), in seconds.
double formula_seconds(const SyncFeatures& features);

}  // namespace heterog::search

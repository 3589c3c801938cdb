// Bandwidths of a cluster's links by what transfers and collectives took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster.h"
#include "cost/collective.h"

namespace heterog::cost {

// A transfer or collective, and how long it took.
struct MeasuredFlow {
  enum class Kind : std::uint8_t { kTransfer, kServerTransfer, kAllReduce, kGather };
  Kind kind = Kind::kTransfer;
  std::vector<DeviceId> devices;  // of a transfer its source and destination; else all of them
  Bytes bytes = 0;
  double seconds = 0;  // above 0
};
// What its formula says on this cluster (cost/collective.h).
double predicted_seconds(const cluster::Cluster& cluster, const MeasuredFlow& flow);

struct FittedLinks {
  IdVector<LinkId, double> bandwidth;  // each as so many times the cluster's
  // Mean of |log(measured / predicted)|, weighted as below, before and after.
  double error_before = 0, error_after = 0;
  std::vector<LinkId> seen = {};  // those that flows crossed, ascending
};

// Regression of logarithms with a ridge: the x that minimise
//
//   Σ_t w_t (log m_t − log p_t(x))² / σ²  +  Σ_i x_i² / τ²,      σ = 0.1, τ = 0.5
//
// where m_t is what flow t took, p_t(x) what its formula says when link i has exp(x_i) times its
// bandwidth, and w_t its part of all m, times their number: what takes long matters. Flows of which
// latency is half or more say nothing of bandwidth and are left out; latencies stay those of the
// cluster. Without any flow over it a link stays as it is; with few, near to that. Of links in a
// row the slowest alone shows; one that would not is left where it is. Gauss-Newton steps, halved
// where they do not help; derivatives are differences.
FittedLinks fit_links(const cluster::Cluster& cluster, std::span<const MeasuredFlow> flows);

// The same for whoever compares plans, of which some use links that were not seen: their bandwidth
// is log-normal around the cluster's, with the deviation τ of the fit, so that what goes over them
// is expected to take exp(τ²/2) = 1.13 times as long as there, and they have 1 / 1.13 of its
// bandwidth. Else a search prefers what it knows nothing of. Without any link that was seen, all
// stay as they are.
FittedLinks with_unseen_expected(FittedLinks fitted);

// The same machines with what was fitted. Keeps the hash: plans for one are plans for the other.
cluster::Cluster with_fitted_links(const cluster::Cluster& cluster, const FittedLinks& fitted);

}  // namespace heterog::cost

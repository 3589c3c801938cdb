// Data parallelism whose parameters go to servers by their bytes: baselines of AutoSync's paper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "search/registry.h"
#include "search/starts/baselines.h"

namespace heterog::search {

// Even shares. Parameter after parameter, the server is the one that has the fewest bytes by then
// (AutoDist's PSLoadBalancing; ties: lowest id). The compiler's own choice looks at links.
decide::Strategy balanced_ps(const cost::Problem& problem);

// Even shares. Tables whose gradients are rows that were looked up go to servers so, all others are
// all-reduced (Parallax, Kim et al. 2019).
decide::Strategy parallax(const cost::Problem& problem);

// Whether a parameter's gradient is that of look-ups alone, which travels as rows.
bool has_sparse_gradient(const graph::ModelGraph& graph, const graph::UpdateChain& chain);

// A part of fewer bytes costs more messages than it spares bytes.
inline constexpr Bytes kLeastServedBytes = Bytes{64} << 10;
// How many servers share a parameter's rows.
enum class ServerParts : std::uint8_t {
  kDivisor,  // the least divisor above 1 of its rows (AutoDist's PartitionedPS)
  kBytes,    // as many as have kLeastServedBytes or more, by the bandwidth of their networks
};
// Even shares. Parameter after parameter, its rows go to the servers that have the fewest seconds
// of bytes on their networks by then. What cannot be dealt so has one of them (decision 20).
decide::Strategy partitioned_ps(const cost::Problem& problem, ServerParts parts);

// The same strategy with the rows of its parameters on several servers each, by bytes and
// bandwidth: of all that can have several and are large enough, or of those alone whose unit has
// servers. Parameters whose synchronisation it names keep it.
decide::Strategy with_several_servers(const cost::Problem& problem, decide::Strategy strategy,
                                      bool of_all);
// The same strategy with the parameters of units that have servers dealt to these by bytes and
// bandwidth, each to the one that has the fewest seconds of bytes by then. Parameters whose
// synchronisation it names keep it.
decide::Strategy with_balanced_servers(const cost::Problem& problem, decide::Strategy strategy);
// About how many transfers several servers make at most.
double transfers_of_several_servers(const cost::Problem& problem);

struct PartitionedOptions : BaselineOptions {
  ServerParts parts = ServerParts::kBytes;
};

// Parameters whose rows several servers can share, under even shares (decision 20).
IdVector<TensorId, std::uint8_t> can_have_several_servers(const cost::Problem& problem);
// How fast each of the places sends to those of other machines and receives from them, all places
// of a machine at a time: 1 the fastest, and each where there are no other machines.
IdVector<DeviceId, double> network_rates(const cluster::Cluster& cluster,
                                         std::span<const DeviceId> places);

// Planners "ps-lb", "parallax" and "partitioned-ps".
std::vector<PlannerEntry> balanced_server_entries();

}  // namespace heterog::search

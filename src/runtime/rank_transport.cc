// Puts transports on top of each other, as the rank's device and its peers want it.
#include "runtime/rank_transport.h"

#include <algorithm>

#include "runtime/nccl_transport.h"
#include "runtime/routes.h"
#include "runtime/staged_transport.h"

namespace heterog::runtime {
namespace {

ConnectOptions connect_options(const Job& job, const Meeting& meeting,
                               std::chrono::milliseconds timeout) {
  ConnectOptions options{.address = meeting.address, .timeout = timeout};
  const cluster::Cluster& cluster = *job.problem->cluster;
  for (const DeviceId device : cluster.device_ids()) {
    options.device_names.push_back(cluster.device(device).name);
  }
  return options;
}

// The communicators of the job, the same on all ranks; empty if no ranks can talk directly.
NcclOptions nccl_options(const Job& job, const Meeting& meeting, const ConnectOptions& connect) {
  NcclOptions options{.device_names = connect.device_names, .timeout = connect.timeout};
  for (const std::vector<DeviceId>& set : job.sets) {
    options.sets.push_back(talk_directly(set, meeting.gpus) ? set : std::vector<DeviceId>{});
  }
  for (const auto& [from, to] : sending_pairs(job)) {
    if (talk_directly({from, to}, meeting.gpus)) options.pairs.emplace_back(from, to);
  }
  return options;
}

bool is_needed(const NcclOptions& options) {
  return !options.pairs.empty() || std::any_of(options.sets.begin(), options.sets.end(),
                                               [](const auto& set) { return !set.empty(); });
}

}  // namespace

RankTransport::RankTransport(const Job& job, const Meeting& meeting, const Options& options)
    : tcp_(meeting.store, options.own,
           {.connect = connect_options(job, meeting, options.timeout), .sets = job.sets}),
      top_(&tcp_) {
  if (options.device.is_cpu()) return;
  staged_ = std::make_unique<StagedTransport>(tcp_);
  top_ = staged_.get();
  NcclOptions nccl = nccl_options(job, meeting, connect_options(job, meeting, options.timeout));
  if (!is_needed(nccl)) return;
  nccl.device = options.device;
  direct_ = make_nccl_transport(meeting.store, options.own, nccl);
  routed_ = std::make_unique<RoutedTransport>(*staged_, *direct_,
                                              direct_routes(options.own, job.sets, meeting.gpus));
  top_ = routed_.get();
}

RankTransport::~RankTransport() = default;

}  // namespace heterog::runtime

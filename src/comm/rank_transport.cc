// Puts transports on top of each other, as the rank's device and its peers want it.
#include "comm/rank_transport.h"

#include <algorithm>

#include "comm/nccl_transport.h"
#include "comm/staged_transport.h"

namespace heterog::comm {
namespace {

// The communicators of the job, the same on all ranks; empty if no ranks can talk directly.
NcclOptions nccl_options(const Traffic& traffic, const RankTransport::Options& options) {
  NcclOptions nccl{.device_names = options.connect.device_names,
                   .timeout = options.connect.timeout};
  for (const std::vector<DeviceId>& set : traffic.sets) {
    nccl.sets.push_back(talk_directly(set, options.gpus) ? set : std::vector<DeviceId>{});
  }
  for (const auto& [from, to] : traffic.pairs) {
    if (talk_directly({from, to}, options.gpus)) nccl.pairs.emplace_back(from, to);
  }
  return nccl;
}

bool is_needed(const NcclOptions& options) {
  return !options.pairs.empty() || std::any_of(options.sets.begin(), options.sets.end(),
                                               [](const auto& set) { return !set.empty(); });
}

}  // namespace

RankTransport::RankTransport(const Store& store, const Traffic& traffic, const Options& options)
    : tcp_(store, options.own, {.connect = options.connect, .sets = traffic.sets}), top_(&tcp_) {
  if (options.device.is_cpu()) return;
  staged_ = std::make_unique<StagedTransport>(tcp_);
  top_ = staged_.get();
  NcclOptions nccl = nccl_options(traffic, options);
  if (!is_needed(nccl)) return;
  nccl.device = options.device;
  direct_ = make_nccl_transport(store, options.own, nccl);
  routed_ = std::make_unique<RoutedTransport>(
      *staged_, *direct_, direct_routes(options.own, traffic.sets, options.gpus));
  top_ = routed_.get();
}

RankTransport::~RankTransport() = default;

}  // namespace heterog::comm

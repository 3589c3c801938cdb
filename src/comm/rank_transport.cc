// Puts transports on top of each other, as the rank's device and its peers want it.
#include "comm/rank_transport.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "base/check.h"
#include "base/text.h"
#include "comm/c10d_transport.h"
#include "comm/nccl_transport.h"
#include "comm/staged_transport.h"
#include "comm/tcp_transport.h"

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

// Several connections between two ranks are what our own TCP has.
void check_host_flows(const Traffic& traffic, const std::string& transport) {
  const std::string own = transport_names().front();
  VALIDATE(traffic.flows == 1 || transport == own,
           "network.flows: the cluster has {}, and {} has one connection between two ranks; use "
           "--transport {}",
           traffic.flows, transport, own);
}

// NCCL has as many between machines as its environment says.
void check_nccl_flows(const Traffic& traffic, const NcclOptions& nccl) {
  if (traffic.flows == 1) return;
  const auto crosses = [&](std::span<const DeviceId> ranks) {
    return std::ranges::any_of(ranks, [&](DeviceId rank) {
      return traffic.machine_of.empty() ||
             traffic.machine_of[rank] != traffic.machine_of[ranks.front()];
    });
  };
  const bool between_machines =
      std::ranges::any_of(nccl.sets, crosses) || std::ranges::any_of(nccl.pairs, [&](auto pair) {
        return crosses(std::array{pair.first, pair.second});
      });
  if (!between_machines) return;
  std::int64_t sockets = 1;
  for (const char* name : {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}) {
    const char* given = std::getenv(name);
    sockets *= given == nullptr ? 1 : std::max(std::atoll(given), 1LL);
  }
  VALIDATE(sockets == traffic.flows,
           "network.flows: the cluster has {}, and NCCL opens {}; set NCCL_SOCKET_NTHREADS={} and "
           "NCCL_NSOCKS_PERTHREAD=1",
           traffic.flows, sockets, traffic.flows);
}

std::unique_ptr<ProcessTransport> host_transport(const Store& store, const Traffic& traffic,
                                                 const RankTransport::Options& options) {
  check_host_flows(traffic, options.transport);
  for (const BackendKind& kind : c10d_backends()) {
    if (options.transport != kind.name) continue;
    return std::make_unique<C10dTransport>(
        kind, store, options.own, C10dOptions{.connect = options.connect, .sets = traffic.sets});
  }
  TcpOptions tcp{.connect = options.connect, .sets = traffic.sets};
  for (const DeviceId rank : id_range<DeviceId>(options.connect.device_names.size())) {
    const bool here =
        !traffic.machine_of.empty() && traffic.machine_of[rank] == traffic.machine_of[options.own];
    tcp.connect.flows.push_back(here ? 1 : traffic.flows);
  }
  return std::make_unique<TcpTransport>(store, options.own, std::move(tcp));
}

bool is_needed(const NcclOptions& options) {
  return !options.pairs.empty() || std::any_of(options.sets.begin(), options.sets.end(),
                                               [](const auto& set) { return !set.empty(); });
}

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> names{"tcp"};
  for (const BackendKind& kind : c10d_backends()) names.emplace_back(kind.name);
  return names;
}

void check_transport(const std::string& name, const std::string& field) {
  const std::vector<std::string> names = transport_names();
  VALIDATE(std::ranges::find(names, name) != names.end(),
           "{}: \"{}\" given; this build of heterog has {}", field, printable(name),
           fmt::join(names, ", "));
}

RankTransport::RankTransport(const Store& store, const Traffic& traffic, const Options& options)
    : host_(host_transport(store, traffic, options)), top_(host_.get()) {
  if (options.device.is_cpu()) return;
  staged_ = std::make_unique<StagedTransport>(*host_);
  top_ = staged_.get();
  NcclOptions nccl = nccl_options(traffic, options);
  if (!is_needed(nccl)) return;
  check_nccl_flows(traffic, nccl);
  nccl.device = options.device;
  direct_ = make_nccl_transport(store, options.own, nccl);
  routed_ = std::make_unique<RoutedTransport>(
      *staged_, *direct_, direct_routes(options.own, traffic.sets, options.gpus));
  top_ = routed_.get();
}

RankTransport::~RankTransport() = default;

}  // namespace heterog::comm

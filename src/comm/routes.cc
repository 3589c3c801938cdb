// Which ranks can talk directly, and calls to one transport or the other.
#include "comm/routes.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace heterog::comm {

bool talk_directly(const std::vector<DeviceId>& ranks, const RankGpus& gpus) {
  std::set<std::string> known;
  return std::all_of(ranks.begin(), ranks.end(), [&](DeviceId rank) {
    const std::string& gpu = gpus[rank.value()];
    return !gpu.empty() && known.insert(gpu).second;
  });
}

Routes direct_routes(DeviceId own, const DeviceSets& sets, const RankGpus& gpus) {
  Routes routes;
  for (const std::vector<DeviceId>& set : sets) routes.sets.push_back(talk_directly(set, gpus));
  for (const DeviceId peer : id_range<DeviceId>(gpus.size())) {
    routes.peers.push_back(peer != own && talk_directly({own, peer}, gpus));
  }
  return routes;
}

Routes one_device_routes(DeviceId own, const DeviceSets& sets,
                         const std::vector<at::Device>& devices) {
  const at::Device here = devices[own.value()];
  const auto is_here = [&](DeviceId rank) {
    return !here.is_cpu() && devices[rank.value()] == here;
  };
  Routes routes;
  for (const std::vector<DeviceId>& set : sets) {
    routes.sets.push_back(std::ranges::all_of(set, is_here));
  }
  for (const DeviceId peer : id_range<DeviceId>(devices.size())) {
    routes.peers.push_back(peer != own && is_here(peer));
  }
  return routes;
}

Transport& RoutedTransport::to_peer(const at::Tensor& value, DeviceId peer) const {
  return !value.is_cpu() && routes_.peers[peer.value()] ? direct_ : host_;
}

Transport& RoutedTransport::to_set(const at::Tensor& value, std::size_t set) const {
  return !value.is_cpu() && routes_.sets[set] ? direct_ : host_;
}

// NCCL has no sum for one type of a graph's; all members see the same type.
Transport& RoutedTransport::sums_in(const at::Tensor& value, std::size_t set) const {
  return value.scalar_type() == at::kShort ? host_ : to_set(value, set);
}

void RoutedTransport::send(const at::Tensor& value, DeviceId to, std::uint32_t tag) {
  to_peer(value, to).send(value, to, tag);
}

void RoutedTransport::receive(at::Tensor& value, DeviceId from, std::uint32_t tag) {
  to_peer(value, from).receive(value, from, tag);
}

void RoutedTransport::all_reduce(at::Tensor& value, std::size_t set) {
  sums_in(value, set).all_reduce(value, set);
}

void RoutedTransport::reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  sums_in(value, set).reduce_scatter(value, cuts, set);
}

void RoutedTransport::all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  to_set(value, set).all_gather_rows(value, cuts, set);
}

std::vector<at::Tensor> RoutedTransport::all_gather(const at::Tensor& own, std::size_t set) {
  return to_set(own, set).all_gather(own, set);
}

std::vector<at::Tensor> RoutedTransport::gather_all(const at::Tensor& own) {
  return host_.gather_all(own);
}

void RoutedTransport::check() {
  host_.check();
  direct_.check();
}

void RoutedTransport::abort(const std::string& reason) {
  host_.abort(reason);
  direct_.abort(reason);
}

}  // namespace heterog::comm

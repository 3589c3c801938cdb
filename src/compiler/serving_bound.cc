// The links between machines that each server's pushes and pulls hold.
#include "compiler/serving_bound.h"

#include <algorithm>
#include <vector>

#include "compiler/emit/gradients.h"
#include "compiler/emit/rows.h"
#include "cost/collective.h"
#include "decide/servers.h"
#include "graph/row_updates.h"

namespace heterog::compiler {
namespace {

using decide::ParameterHome;

// Who pushes to one server or pulls from it, and how many bytes each.
struct Served {
  DeviceId server;
  std::vector<DeviceId> pushing, pulling;
  Bytes pushed = 0, pulled = 0;
};

class Links {
 public:
  explicit Links(const cost::Problem& problem)
      : cluster_(*problem.cluster),
        in_all_(cluster_.link_count(), 0),
        of_one_(cluster_.link_count(), 0) {}

  // How long the busiest link is held by what `devices` push to the server, or pull from it.
  Nanoseconds hold(std::span<const DeviceId> devices, DeviceId server, bool to_server,
                   Bytes bytes) {
    Nanoseconds most = 0;
    if (bytes == 0) return most;
    for (const decide::Speaker& speaker : decide::speakers(cluster_, devices, server)) {
      if (cluster_.same_machine(speaker.device, server)) continue;
      const cluster::Route& route = to_server ? cluster_.route(speaker.device, server)
                                              : cluster_.route(server, speaker.device);
      for (LinkId link : route.links) {
        const Nanoseconds held =
            cost::link_hold(cluster_, route, link, bytes, cost::TransferUse::kServer);
        in_all_[link] += held;
        if (of_one_[link] == 0) touched_.push_back(link);
        of_one_[link] += held;
        most = std::max(most, of_one_[link]);
      }
    }
    for (LinkId link : touched_) of_one_[link] = 0;
    touched_.clear();
    return most;
  }

  Nanoseconds busiest() const {
    return in_all_.empty() ? 0 : *std::ranges::max_element(in_all_.raw());
  }

 private:
  const cluster::Cluster& cluster_;
  IdVector<LinkId, Nanoseconds> in_all_;
  IdVector<LinkId, Nanoseconds> of_one_;  // 0 but while one is gone through
  std::vector<LinkId> touched_;
};

// Of what is pushed whole, uncompressed, by several devices.
Bytes pushed_bytes(const cost::Problem& problem, const Gradient& gradient,
                   const ParameterHome& home) {
  if (problem.compression.any()) return 0;
  const graph::ModelGraph& graph = *problem.graph;
  TensorId sent = gradient.tensor;
  if (home.partitioned()) {
    sent =
        graph::form_for_update(graph, graph::chain_of(*problem.folded, gradient.parameter), sent);
  } else if (sparse_rows(problem, sent, problem.batch)) {
    return 0;
  }
  return sent.valid() ? graph.bytes(sent, problem.batch) : 0;
}

// The servers of a parameter, each with its part of the bytes.
std::vector<Served> servers_of(const cost::Problem& problem, const decide::Layout& layout,
                               const Gradient& gradient) {
  const ParameterHome& home = layout.home(gradient.parameter);
  Served whole{.pulling = {home.replicas.begin(), home.replicas.end()}};
  const decide::LayoutId made = layout.merged[layout.of_op[gradient.producer]];
  for (const decide::Slice& slice : layout.slices[made]) whole.pushing.push_back(slice.device);
  whole.pushed = whole.pushing.size() > 1 ? pushed_bytes(problem, gradient, home) : 0;
  if (problem.folded->updater[gradient.parameter].valid()) {
    whole.pulled = problem.graph->bytes(gradient.parameter, 1);
  }
  if (home.server.valid() && home.replicas.size() > 1) {
    whole.server = home.server;
    return {std::move(whole)};
  }
  std::vector<Served> parts;
  if (!home.partitioned()) return parts;
  const auto devices = home.devices();
  for (std::size_t i = 0; i < home.replicas.size(); ++i) {
    if (home.rows_of(i) == 0) continue;
    parts.push_back({.server = home.replicas[i],
                     .pushing = whole.pushing,
                     .pulling = {devices.begin(), devices.end()},
                     .pushed = decide::row_bytes(home, i, whole.pushed),
                     .pulled = decide::row_bytes(home, i, whole.pulled)});
  }
  return parts;
}

}  // namespace

Nanoseconds serving_bound(const cost::Problem& problem, const decide::Layout& layout) {
  Links links(problem);
  Nanoseconds bound = 0;
  std::vector<std::uint8_t> pulled(layout.homes.size(), 0);
  for (const Gradient& gradient : partial_gradients(problem, layout)) {
    // Of a parameter with several gradients the pulls follow each.
    std::uint8_t& seen = pulled[layout.home_of[gradient.parameter]];
    for (const Served& one : servers_of(problem, layout, gradient)) {
      Nanoseconds both = links.hold(one.pushing, one.server, true, one.pushed);
      if (!seen) both += links.hold(one.pulling, one.server, false, one.pulled);
      bound = std::max(bound, both);
    }
    seen = 1;
  }
  return std::max(bound, links.busiest());
}

}  // namespace heterog::compiler

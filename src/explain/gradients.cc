// Adds up parameters by how their gradients are aggregated.
#include "explain/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "decide/frozen.h"
#include "decide/layout.h"
#include "explain/amounts.h"

namespace heterog::explain {

namespace {

// Parameters that travel in one way.
struct Way {
  Bytes bytes = 0;
  std::size_t least = 0, most = 0;  // devices
  std::set<DeviceId> hosts;         // that serve it
  std::set<std::uint32_t> groups;   // that share a collective

  void add(Bytes more, const decide::ParameterHome& home) {
    const std::size_t devices = home.device_count();
    hosts.insert(home.replicas.end() - static_cast<std::ptrdiff_t>(home.hosts),
                 home.replicas.end());
    least = bytes == 0 ? devices : std::min(least, devices);
    most = std::max(most, devices);
    bytes += more;
    if (home.group > 0) groups.insert(home.group);
  }
  std::string text(const char* how) const {
    const std::string devices =
        least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
    const std::string on = hosts.empty()       ? ""
                           : hosts.size() == 1 ? " on a host"
                                               : fmt::format(" on {} hosts", hosts.size());
    const std::string in = groups.empty()       ? ""
                           : groups.size() == 1 ? " in 1 group"
                                                : fmt::format(" in {} groups", groups.size());
    return fmt::format("{} by {}{}{} among {} devices", bytes_text(bytes), how, on, in, devices);
  }
};

}  // namespace

std::string gradients_text(const cost::Problem& problem, const decide::Strategy& strategy) {
  const decide::Layout layout = decide::lay_out(problem, strategy);
  // whole: all-reduced, though its unit shards
  Way reduced, served, partitioned, sharded, whole, still;
  // What is asked to lie in rows has no gradients.
  const std::vector<TensorId> frozen = decide::frozen_to_gather(problem, strategy);
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = layout.home(parameter);
    if (std::ranges::binary_search(frozen, parameter)) continue;
    Way& way = home.replicas.size() == 1                             ? still
               : home.sharded()                                      ? sharded
               : home.partitioned()                                  ? partitioned
               : home.method == decide::SyncMethod::kParameterServer ? served
               : home.method == decide::SyncMethod::kSharded         ? whole
                                                                     : reduced;
    way.add(problem.graph->bytes(parameter, 1), home);
  }
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  const bool servers_first = served.bytes > reduced.bytes;
  if (servers_first) add(served.text("parameter servers"));
  if (reduced.bytes > 0) add(reduced.text("all-reduce"));
  if (!servers_first && served.bytes > 0) add(served.text("parameter servers"));
  if (partitioned.bytes > 0) add(partitioned.text("partitioned parameter servers"));
  if (sharded.bytes > 0) add(sharded.text("shards"));
  if (whole.bytes > 0) add(whole.text("all-reduce, as their updates do not go by rows,"));
  Bytes in_rows = 0, kept = 0;
  for (TensorId tensor : frozen) {
    const bool gathers = std::ranges::binary_search(layout.gathered, tensor);
    (gathers ? in_rows : kept) += problem.graph->bytes(tensor, 1);
  }
  if (still.bytes > 0) {
    text += fmt::format("{}{} stay where they are made", text.empty() ? "" : "; ",
                        bytes_text(still.bytes));
  }
  if (in_rows > 0) {
    text += fmt::format("; {} frozen in rows, gathered for each pass", bytes_text(in_rows));
  }
  if (kept > 0) text += fmt::format("; {} frozen and whole", bytes_text(kept));
  if (problem.compression.any()) {
    text += fmt::format("; compressed by {}, which is lossy",
                        cost::compression_text(problem.compression));
  }
  return text;
}

std::string compression_words(const cost::Problem& problem) {
  if (!problem.compression.any()) return "";
  return ", gradients compressed by " + cost::compression_text(problem.compression);
}

}  // namespace heterog::explain

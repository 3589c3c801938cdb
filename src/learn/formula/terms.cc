// Stages are judged by the part of the cluster that they are, and by how far a group is from where
// its device stands when both are laid end to end.
#include "learn/formula/terms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace heterog::learn {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Rows beyond which those that are like others are left out.
constexpr std::size_t kMostRows = 160;

// The part of the line of devices, by speed, that a row has; one that is longer than its devices
// where these are not neighbours.
struct Stretch {
  double begin = 1, end = 0, length = 0;
  std::size_t devices = 0;
};

Stretch stretch_of(const space::Summary& summary, space::ActionId row) {
  Stretch stretch;
  for (const decide::Replica& replica : summary.actions.decision(row).replicas) {
    const space::Span& span = summary.spans.device_speed[replica.device];
    stretch.begin = std::min(stretch.begin, span[0]);
    stretch.end = std::max(stretch.end, span[1]);
    stretch.length += span[1] - span[0];
    ++stretch.devices;
  }
  return stretch;
}

// What a group costs as part of a stage. All stages compute beside each other, so one has its part
// of the seconds that it computes; a group that is elsewhere in the model than the stage in the
// cluster makes one stage longer and another shorter than the devices are.
std::vector<double> staged_seconds(const space::Summary& summary, const space::LayoutCosts& costs,
                                   const std::vector<space::ActionId>& rows) {
  constexpr double kNeighbours = 1.001;
  const double whole = summary.total_seconds;
  std::vector<Stretch> stretches;
  for (const space::ActionId row : rows) stretches.push_back(stretch_of(summary, row));
  std::vector<double> seconds;
  for (GroupId group : id_range<GroupId>(costs.groups)) {
    const space::Span& span = summary.spans.group_time[group];
    const double middle = (span[0] + span[1]) / 2;
    for (std::size_t a = 0; a < rows.size(); ++a) {
      const Stretch& stretch = stretches[a];
      const bool stage = 2 * stretch.devices <= summary.problem.cluster->device_count() &&
                         stretch.end - stretch.begin <= kNeighbours * stretch.length;
      const double apart = std::max({0.0, stretch.begin - middle, middle - stretch.end});
      seconds.push_back(stage ? stretch.length * costs.compute[group.value() * rows.size() + a] +
                                    apart * whole
                              : kNever);
    }
  }
  return seconds;
}

// What matters of a row to the modes that allow it.
struct RowKind {
  bool single = false, servers = false;
  bool slowest = false;  // has devices of the slowest of several types
  bool stage = false;
};

bool allowed(LayoutMode mode, const RowKind& row) {
  const bool by_servers = row.single || row.servers, by_reduce = row.single || !row.servers;
  switch (mode) {
    case LayoutMode::kServers:
    case LayoutMode::kReduceInstead:
      return by_servers;
    case LayoutMode::kAllReduce:
    case LayoutMode::kServersInstead:
    case LayoutMode::kSharded:
      return by_reduce;
    case LayoutMode::kFewerReduce:
      return by_reduce && !row.slowest;
    case LayoutMode::kFewerServers:
      return by_servers && !row.slowest;
    case LayoutMode::kMixed:
      return true;
    case LayoutMode::kStages:
      return row.stage;
  }
  return true;
}

std::vector<RowKind> kinds_of(const space::Summary& summary, const FormulaTerms& terms) {
  const cluster::Cluster& cluster = *summary.problem.cluster;
  const auto speed = [&](DeviceTypeId type) { return summary.problem.costs.model_speed(type); };
  DeviceTypeId slowest(0);
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
    if (speed(type) < speed(slowest)) slowest = type;
  }
  std::vector<RowKind> kinds;
  for (std::size_t a = 0; a < terms.rows.size(); ++a) {
    const space::Action& action = summary.actions[terms.rows[a]];
    const bool slow = std::ranges::any_of(
        summary.actions.decision(terms.rows[a]).replicas,
        [&](const decide::Replica& one) { return cluster.device(one.device).type == slowest; });
    kinds.push_back({.single = action.placement == space::Placement::kSingle,
                     .servers = action.sync == decide::SyncMethod::kParameterServer,
                     .slowest = slow,
                     .stage = terms.staged[a] != kNever});
  }
  return kinds;
}

// Seconds of a layout's terms, minus; where nothing has been learnt.
Chain formula_chain(const FormulaTerms& terms, std::size_t layout) {
  Chain chain = space::cost_chain(terms.costs, unhidden_of(layout));
  const std::size_t rows = terms.costs.layouts;
  for (std::size_t i = 0; i < chain.own.size(); ++i) {
    if (mode_of(layout) == LayoutMode::kStages)
      chain.own[i] += terms.costs.compute[i] - terms.staged[i];
    if (!terms.allowed[layout][i % rows]) chain.own[i] = kImpossible;
  }
  return chain;
}

}  // namespace

FormulaTerms formula_terms(const space::Summary& summary) {
  FormulaTerms terms;
  for (const space::ActionId row : summary.actions.ids()) terms.rows.push_back(row);
  if (terms.rows.size() > kMostRows) {
    terms.rows = space::unlike_rows(summary.actions, *summary.problem.cluster);
  }
  terms.row_of = IdVector<space::ActionId, std::uint32_t>(summary.actions.size(), 0u);
  for (std::size_t a = 0; a < terms.rows.size(); ++a) {
    terms.row_of[terms.rows[a]] = static_cast<std::uint32_t>(a);
  }
  terms.costs = space::layout_costs(summary, terms.rows);
  terms.staged = staged_seconds(summary, terms.costs, terms.rows);
  const std::vector<RowKind> kinds = kinds_of(summary, terms);
  for (std::size_t layout = 0; layout < terms.allowed.size(); ++layout) {
    for (const RowKind& kind : kinds) {
      terms.allowed[layout].push_back(allowed(mode_of(layout), kind));
    }
    if (std::ranges::none_of(terms.allowed[layout], std::identity())) {
      terms.seconds[layout] = kNever;  // as without the slowest type where there is one
      continue;
    }
    const Chain chain = formula_chain(terms, layout);
    terms.paths[layout] = best_path(chain);
    terms.seconds[layout] = -score(chain, terms.paths[layout]);
  }
  return terms;
}

std::vector<float> layout_features(const FormulaTerms& terms) {
  const space::LayoutCosts& costs = terms.costs;
  const double least = *std::ranges::min_element(terms.seconds);
  std::vector<float> features;
  for (std::size_t layout = 0; layout < kLayouts; ++layout) {
    std::array<double, kLayoutFeatures> row{};
    row[layout / kUnhidden.size()] = 1;
    row[kLayoutModes + layout % kUnhidden.size()] = 1;
    if (terms.seconds[layout] != kNever) {
      const Path& path = terms.paths[layout];
      double compute = 0, sync = 0, moved = 0, changes = 0;
      std::vector<double> groups_on(costs.layouts, 0);
      for (std::size_t n = 0; n < path.size(); ++n) {
        compute += costs.compute[n * costs.layouts + path[n]];
        sync += costs.sync[n * costs.layouts + path[n]];
        ++groups_on[path[n]];
        if (n == 0 || path[n] == path[n - 1]) continue;
        ++changes;
        moved += costs.crossing[n] * costs.moving[path[n - 1] * costs.layouts + path[n]];
      }
      const double groups = static_cast<double>(path.size());
      const double together = compute + sync + 1e-12;
      const double known[] = {std::min(4.0, std::log(terms.seconds[layout] / least)),
                              std::log(1e-9 + compute / together) / 3,
                              std::log(1e-9 + sync / together) / 3,
                              std::min(4.0, moved / together),
                              changes / groups,
                              std::ranges::max(groups_on) / groups,
                              1};
      std::ranges::copy(known, row.end() - std::ssize(known));
    }
    for (const double value : row) features.push_back(static_cast<float>(value));
  }
  return features;
}

}  // namespace heterog::learn

// Layouts of groups by the terms of estimated layouts, pipelines by the estimate of their stages.
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

// What matters of a row to the modes that allow it.
struct RowKind {
  bool single = false, servers = false;
  bool slowest = false;  // has devices of the slowest of several types
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
    case LayoutMode::kPipeline:
    case LayoutMode::kOtherPipeline:
      return false;
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
                     .slowest = slow});
  }
  return kinds;
}

// Seconds of a layout's terms, minus; where nothing has been learnt.
Chain formula_chain(const FormulaTerms& terms, std::size_t layout) {
  Chain chain = space::cost_chain(terms.costs, unhidden_of(layout));
  const std::size_t rows = terms.costs.layouts;
  for (std::size_t i = 0; i < chain.own.size(); ++i) {
    if (!terms.allowed[layout][i % rows]) chain.own[i] = kImpossible;
  }
  return chain;
}

// What a layout is like: parts of its seconds, of the groups that have another row than the one
// before, and of the groups in its most common row.
struct LayoutShape {
  double compute = 1, sync = 0, moved = 0, changes = 0, most_groups = 1;
};

LayoutShape shape_of_path(const space::LayoutCosts& costs, const Path& path) {
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
  const double groups = static_cast<double>(path.size()), together = compute + sync + 1e-12;
  return {.compute = compute / together,
          .sync = sync / together,
          .moved = moved / together,
          .changes = changes / groups,
          .most_groups = std::ranges::max(groups_on) / groups};
}

// Its estimate has the moves in it.
LayoutShape shape_of_pipeline(const FormulaPipeline& pipeline) {
  const std::vector<search::Stage>& stages = pipeline.cut.stages;
  const auto layers = static_cast<double>(stages.back().end);
  std::size_t longest = 0;
  for (const search::Stage& stage : stages) longest = std::max(longest, stage.end - stage.begin);
  return {.changes = static_cast<double>(stages.size() - 1) / layers,
          .most_groups = static_cast<double>(longest) / layers};
}

MemoryNeed need_of_path(const space::Summary& summary, const FormulaTerms& terms,
                        const std::vector<double>& made, std::size_t layout) {
  std::vector<const std::vector<decide::Replica>*> replicas;
  for (const std::uint32_t row : terms.paths[layout]) {
    replicas.push_back(&summary.actions.decision(terms.rows[row]).replicas);
  }
  return memory_need(summary, made, replicas, mode_of(layout) == LayoutMode::kSharded);
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
  terms.pipelines = formula_pipelines(summary.problem);
  const std::vector<RowKind> kinds = kinds_of(summary, terms);
  const std::vector<double> made = made_for_later(summary.problem);
  for (std::size_t layout = 0; layout < terms.allowed.size(); ++layout) {
    for (const RowKind& kind : kinds) {
      terms.allowed[layout].push_back(allowed(mode_of(layout), kind));
    }
    if (is_pipeline(mode_of(layout))) {
      terms.paths[layout].assign(terms.costs.groups, 0);
      const FormulaPipeline* pipeline = pipeline_of(terms, layout, false);
      terms.seconds[layout] = pipeline == nullptr ? kNever : pipeline->cut.seconds;
      if (pipeline == nullptr) continue;
      terms.memory[layout] = {.once = fullness(*pipeline, false),
                              .again = fullness(*pipeline_of(terms, layout, true), false),
                              .put_off = fullness(*pipeline, true)};
      continue;
    }
    if (std::ranges::none_of(terms.allowed[layout], std::identity())) {
      terms.seconds[layout] = kNever;  // as without the slowest type where there is one
      continue;
    }
    const Chain chain = formula_chain(terms, layout);
    terms.paths[layout] = best_path(chain);
    terms.seconds[layout] = -score(chain, terms.paths[layout]);
    terms.memory[layout] = need_of_path(summary, terms, made, layout);
  }
  return terms;
}

const FormulaPipeline* pipeline_of(const FormulaTerms& terms, std::size_t layout, bool again) {
  const auto& both = terms.pipelines[layout - kFirstPipeline];
  for (const bool one : {again, !again}) {
    if (both[one]) return &*both[one];
  }
  return nullptr;
}

double memory_need(const FormulaTerms& terms, const PlanChoice& choice) {
  const auto value = [&](Knob knob) { return choice[static_cast<std::size_t>(knob)]; };
  const MemoryNeed& need = terms.memory[value(Knob::kLayout)];
  if (value(Knob::kRecompute) == 1) return need.again;
  const bool put_off = is_pipeline(mode_of(value(Knob::kLayout))) && value(Knob::kOrder) == 0;
  return put_off ? need.put_off : need.once;
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
      const LayoutShape shape = is_pipeline(mode_of(layout))
                                    ? shape_of_pipeline(*pipeline_of(terms, layout, false))
                                    : shape_of_path(costs, terms.paths[layout]);
      const double known[] = {std::min(4.0, std::log(terms.seconds[layout] / least)),
                              std::log(1e-9 + shape.compute) / 3,
                              std::log(1e-9 + shape.sync) / 3,
                              std::min(4.0, shape.moved),
                              shape.changes,
                              shape.most_groups,
                              std::clamp(terms.memory[layout].once, -2.0, 2.0),
                              std::clamp(terms.memory[layout].again, -2.0, 2.0),
                              std::clamp(terms.memory[layout].put_off, -2.0, 2.0),
                              1};
      std::ranges::copy(known, row.end() - std::ssize(known));
    }
    for (const double value : row) features.push_back(static_cast<float>(value));
  }
  return features;
}

}  // namespace heterog::learn

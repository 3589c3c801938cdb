// Repeats lists of replicas, and orders instances by the micro-batch that they belong to.
#include "compiler/accumulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/layout.h"
#include "graph/folded.h"

namespace heterog::compiler {

using graph::OperandUse;
using graph::Phase;
using graph::SplitKind;

void check_instances(const cost::Problem& problem, std::int64_t of_each, std::string_view source) {
  const auto ops = static_cast<std::int64_t>(problem.folded->ops.size());
  VALIDATE(of_each <= std::max<std::int64_t>(1, kMostInstances / std::max<std::int64_t>(1, ops)),
           "{}: {} instances of each of {} ops; expected at most {} of each, {} in all", source,
           of_each, ops, std::max<std::int64_t>(1, kMostInstances / ops), kMostInstances);
}

std::vector<std::int64_t> micro_batch_boundaries(std::int64_t batch, std::int64_t micro_batches) {
  std::vector<std::int64_t> boundaries;
  for (std::int64_t i = 0; i <= micro_batches; ++i) boundaries.push_back(batch * i / micro_batches);
  return boundaries;
}

std::vector<std::int64_t> next_part(const std::vector<std::int64_t>& left, std::int64_t samples) {
  const std::int64_t all = std::accumulate(left.begin(), left.end(), std::int64_t{0});
  std::vector<std::int64_t> part, remainder;
  std::vector<std::size_t> by_remainder;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    part.push_back(left[i] * samples / all);
    remainder.push_back(left[i] * samples % all);
    by_remainder.push_back(i);
    given += part.back();
  }
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; given < samples; ++i, ++given) ++part[by_remainder[i]];
  return part;
}

namespace {

// Weights are numbers of samples, from which slices of those sizes follow.
UnitDecision cut_unit(const UnitDecision& unit, const std::vector<std::int64_t>& begins) {
  const std::vector<Slice> slices = slice_batch(unit, begins.back());
  std::vector<std::int64_t> left;
  for (const Slice& slice : slices) left.push_back(slice.size());
  UnitDecision made = unit;
  made.replicas.clear();
  made.instances = Instances::kPerEntry;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    const std::vector<std::int64_t> part = next_part(left, begins[i + 1] - begins[i]);
    for (std::size_t entry = 0; entry < part.size(); ++entry) {
      left[entry] -= part[entry];
      if (part[entry] == 0) continue;
      made.replicas.push_back({slices[entry].device, static_cast<double>(part[entry])});
    }
  }
  return made;
}

}  // namespace

IdVector<OpId, std::uint8_t> needed_by_all(const cost::Problem& problem) {
  const graph::ModelGraph& graph = *problem.graph;
  IdVector<OpId, std::uint8_t> needed(graph.op_count(), 0);
  const auto& ops = problem.folded->ops;
  // Readers come after what they read.
  for (std::size_t i = ops.size(); i-- > 0;) {
    const OpId op = ops[i];
    if (graph.op(op).phase == Phase::kUpdate) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid()) continue;
      const SplitKind kind = read.rule.kind;
      const bool adds_up = kind == SplitKind::kSum || kind == SplitKind::kMean;
      const bool gathers = !problem.splits->sliceable[op] && kind == SplitKind::kConcat;
      if (needed[op] || gathers || (adds_up && read.use != OperandUse::kPartial)) {
        needed[read.producer] = 1;
      }
    }
  }
  return needed;
}

namespace {

std::vector<OpPriority> priorities_of(const cost::Problem& problem, const Strategy& strategy,
                                      const std::vector<std::int64_t>& begins, const TurnOf& turn) {
  const Layout layout = lay_out(problem, strategy);
  const IdVector<OpId, std::uint8_t> needed = needed_by_all(problem);
  std::vector<OpPriority> priorities;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate || needed[op]) continue;
    const LayoutId at = layout.of_op[op];
    if (layout.merged[at] == at) continue;  // once a device, for all of its micro-batches
    const auto& slices = layout.slices[at];
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto next = std::upper_bound(begins.begin(), begins.end(), slices[i].begin);
      // The first is behind what has no priority of its own, which all of them need.
      const std::int64_t micro_batch = next - begins.begin() - 1;
      priorities.push_back(
          {op, static_cast<std::uint32_t>(i), -1 - turn(op, slices[i].device, micro_batch)});
    }
  }
  return priorities;
}

}  // namespace

Strategy accumulate(const cost::Problem& problem, const Strategy& strategy,
                    std::int64_t micro_batches) {
  return in_turns(problem, strategy, micro_batches,
                  [](OpId, DeviceId, std::int64_t micro_batch) { return micro_batch; });
}

Strategy in_turns(const cost::Problem& problem, const Strategy& strategy,
                  std::int64_t micro_batches, const TurnOf& turn) {
  VALIDATE(micro_batches >= 1 && micro_batches <= problem.batch,
           "{} micro-batches of a batch of {}; expected 1 to {}", micro_batches, problem.batch,
           problem.batch);
  if (micro_batches == 1) return strategy;
  std::size_t devices = 1;  // that take part in a micro-batch, at the most
  for (const UnitDecision& unit : strategy.units) {
    devices = std::max(devices, unit.replicas.size());
  }
  // Each has a sample of a micro-batch at the least, or is not in it.
  const std::int64_t instances =
      std::min(problem.batch, micro_batches * static_cast<std::int64_t>(devices));
  check_instances(problem, instances, fmt::format("{} micro-batches", micro_batches));
  const std::vector<std::int64_t> begins = micro_batch_boundaries(problem.batch, micro_batches);
  Strategy made = strategy;
  for (UnitId unit : id_range<UnitId>(strategy.units.size())) {
    // Neighbouring units often decide alike.
    const bool as_before =
        unit.value() > 0 && strategy.units[unit] == strategy.units[UnitId(unit.value() - 1)];
    made.units[unit] =
        as_before ? made.units[UnitId(unit.value() - 1)] : cut_unit(strategy.units[unit], begins);
  }
  return with_turns(problem, std::move(made), micro_batches, turn);
}

Strategy with_turns(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches,
                    const TurnOf& turn) {
  strategy.priorities =
      priorities_of(problem, strategy, micro_batch_boundaries(problem.batch, micro_batches), turn);
  // Priorities of instances that are no more say nothing of those that are.
  const bool had_its_own = strategy.order == OrderPolicy::kPriority;
  strategy.order = !strategy.priorities.empty() ? OrderPolicy::kPriority
                   : had_its_own                ? OrderPolicy::kRankQueued
                                                : strategy.order;
  return strategy;
}

}  // namespace heterog::compiler

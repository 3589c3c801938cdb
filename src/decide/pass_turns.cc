// Finds stages by the forward ops that devices have in common.
#include "decide/pass_turns.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "decide/micro_batches.h"
#include "graph/folded.h"

namespace heterog::decide {
namespace {

using graph::OperandUse;
using graph::Phase;
using graph::SplitKind;

// Of the forward pass, what each device runs, and what neighbours in one list run together.
struct ForwardWork {
  IdVector<DeviceId, std::int64_t> ops;
  IdVector<DeviceId, std::int64_t> places;  // of these ops in the forward pass, added up
  std::map<std::pair<DeviceId, DeviceId>, std::int64_t> together;
};

ForwardWork forward_work(const cost::Problem& problem, const Strategy& strategy,
                         const Layout& layout) {
  const std::size_t devices = problem.cluster->place_count();
  ForwardWork work{IdVector<DeviceId, std::int64_t>(devices, 0),
                   IdVector<DeviceId, std::int64_t>(devices, 0),
                   {}};
  IdVector<LayoutId, std::int64_t> ops(layout.slices.size(), 0), places(layout.slices.size(), 0);
  std::int64_t place = 0;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kForward) continue;
    ++place;
    if (same_everywhere(problem, op)) continue;
    ++ops[layout.of_op[op]];
    places[layout.of_op[op]] += place;
  }
  for (LayoutId at : id_range<LayoutId>(layout.slices.size())) {
    if (ops[at] == 0) continue;
    std::set<std::pair<std::uint32_t, DeviceId>> in_order;
    for (const Slice& slice : layout.slices[at]) {
      in_order.emplace(pipeline_of(strategy, slice.device), slice.device);
    }
    for (auto one = in_order.begin(); one != in_order.end(); ++one) {
      work.ops[one->second] += ops[at];
      work.places[one->second] += places[at];
      const auto next = std::next(one);
      if (next == in_order.end() || next->first != one->first) continue;
      work.together[{one->second, next->second}] += ops[at];
    }
  }
  return work;
}

}  // namespace

bool same_everywhere(const cost::Problem& problem, OpId op) {
  return std::ranges::all_of(problem.graph->outputs(op), [&](TensorId out) {
    return !out.valid() || problem.splits->rules[out].kind == SplitKind::kSame;
  });
}

IdVector<DeviceId, StageOfDevice> stages_of_devices(const cost::Problem& problem,
                                                    const Strategy& strategy,
                                                    const Layout& layout) {
  const ForwardWork work = forward_work(problem, strategy, layout);
  const auto devices = problem.cluster->device_ids();
  // The first device of each one's stage.
  IdVector<DeviceId, DeviceId> first(problem.cluster->place_count());
  for (DeviceId device : devices) first[device] = device;
  for (const auto& [pair, ops] : work.together) {
    if (2 * ops <= std::min(work.ops[pair.first], work.ops[pair.second])) continue;
    const DeviceId low = std::min(first[pair.first], first[pair.second]);
    const DeviceId high = std::max(first[pair.first], first[pair.second]);
    for (DeviceId device : devices) {
      if (first[device] == high) first[device] = low;
    }
  }
  struct Stage {
    DeviceId first;
    double place = 0;  // of its forward ops, in the mean
  };
  std::map<std::uint32_t, std::vector<Stage>> pipelines;
  for (DeviceId device : devices) {
    if (first[device] != device || work.ops[device] == 0) continue;
    std::int64_t ops = 0, places = 0;
    for (DeviceId other : devices) {
      if (first[other] != device) continue;
      ops += work.ops[other];
      places += work.places[other];
    }
    pipelines[pipeline_of(strategy, device)].push_back(
        {device, static_cast<double>(places) / static_cast<double>(ops)});
  }
  IdVector<DeviceId, StageOfDevice> found(problem.cluster->place_count());
  for (auto& [pipeline, stages] : pipelines) {
    std::ranges::stable_sort(stages, {}, &Stage::place);
    for (std::uint32_t s = 0; s < stages.size(); ++s) {
      for (DeviceId device : devices) {
        if (first[device] != stages[s].first) continue;
        found[device] = {s, static_cast<std::uint32_t>(stages.size())};
      }
    }
  }
  return found;
}

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

IdVector<OpId, std::uint8_t> makes_gradients(const cost::Problem& problem,
                                             const IdVector<OpId, UnitId>& unit_of_op) {
  const graph::ModelGraph& graph = *problem.graph;
  IdVector<OpId, std::uint8_t> makes(graph.op_count(), 0), leads_on(graph.op_count(), 0);
  const auto& ops = problem.folded->ops;
  // Readers come after what they read.
  for (std::size_t i = ops.size(); i-- > 0;) {
    const OpId op = ops[i];
    if (graph.op(op).phase == Phase::kUpdate) continue;
    makes[op] = graph.op(op).phase == Phase::kBackward && !leads_on[op];
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid()) continue;
      if (leads_on[op] || unit_of_op[op] != unit_of_op[read.producer]) leads_on[read.producer] = 1;
    }
  }
  return makes;
}

PassTurns::PassTurns(const cost::Problem& problem, const Strategy& strategy, const Layout& layout)
    : graph_(*problem.graph),
      begins_(micro_batch_boundaries(problem.batch, strategy.micro_batches)),
      has_turns_(problem.graph->op_count(), 0),
      put_off_(problem.graph->op_count(), 0) {
  const IdVector<OpId, std::uint8_t> needed = needed_by_all(problem);
  for (OpId op : problem.folded->ops) {
    if (graph_.op(op).phase == Phase::kUpdate || needed[op]) continue;
    const LayoutId at = layout.of_op[op];
    has_turns_[op] = layout.merged[at] == at ? 0 : 1;
  }
  if (strategy.pattern == Pattern::kZeroBubble) {
    put_off_ = makes_gradients(problem, units_of_ops(problem, strategy));
    for (OpId op : problem.folded->ops) {
      put_off_[op] &= has_turns_[op];
      has_turns_[op] &= !put_off_[op];
    }
  }
  of_device_ = stages_of_devices(problem, strategy, layout);
  for (const StageOfDevice& one : of_device_) {
    if (of_count_.size() <= one.stages) of_count_.resize(one.stages + 1);
    if (of_count_[one.stages].empty()) {
      of_count_[one.stages] = stage_turns(strategy.pattern, one.stages, strategy.micro_batches);
    }
  }
}

std::int64_t PassTurns::turn(OpId op, DeviceId device, std::int64_t begin) const {
  const StageOfDevice& at = of_device_[device];
  const StageTurns& turns = of_count_[at.stages][at.stage];
  const auto m = static_cast<std::size_t>(micro_batch_of(begins_, begin));
  return graph_.op(op).phase == Phase::kForward ? turns.forward[m] : turns.backward[m];
}

IdVector<OpId, std::uint8_t> ops_between_turns(const cost::Problem& problem,
                                               const IdVector<OpId, UnitId>& unit_of_op) {
  IdVector<OpId, std::uint8_t> between = needed_by_all(problem);
  for (OpId op : problem.folded->ops) {
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || read.use != graph::OperandUse::kPartial) continue;
      const bool elsewhere = unit_of_op[read.producer] != unit_of_op[op];
      if (elsewhere || between[read.producer]) between[op] = 1;
    }
  }
  return between;
}

bool stages_in_line(const cost::Problem& problem, const Strategy& strategy) {
  const Layout layout = lay_out(problem, strategy);
  const PassTurns passes(problem, strategy, layout);
  const IdVector<OpId, std::uint8_t> between =
      ops_between_turns(problem, units_of_ops(problem, strategy));
  const auto in_line = [&](LayoutId from, LayoutId to, bool forward) {
    for (const Slice& made : layout.slices[from]) {
      for (const Slice& read : layout.slices[to]) {
        if (made.begin >= read.end || read.begin >= made.end) continue;
        if (pipeline_of(strategy, made.device) != pipeline_of(strategy, read.device)) return false;
        const std::uint32_t before = passes.stage(made.device), after = passes.stage(read.device);
        if (forward ? before > after : before < after) return false;
      }
    }
    return true;
  };
  std::set<std::tuple<LayoutId, LayoutId, bool>> seen;
  for (OpId op : problem.folded->ops) {
    if (between[op] || !passes.has_turns(op)) continue;
    const graph::Phase phase = problem.graph->op(op).phase;
    for (const graph::Read& read : problem.folded->reads[op]) {
      const OpId from = read.producer;
      if (!from.valid() || between[from] || !passes.has_turns(from)) continue;
      if (problem.graph->op(from).phase != phase) continue;
      const bool forward = phase == graph::Phase::kForward;
      const LayoutId made = layout.of_op[from], reads = layout.of_op[op];
      if (!seen.emplace(made, reads, forward).second) continue;
      if (!in_line(made, reads, forward)) return false;
    }
  }
  return true;
}

std::vector<OpPriority> priorities_of(const cost::Problem& problem, const Strategy& strategy,
                                      const Layout& layout) {
  if (strategy.order != OrderPolicy::kPriority) return {};
  if (!strategy.priorities.empty()) return strategy.priorities;
  const PassTurns turns(problem, strategy, layout);
  std::vector<OpPriority> priorities;
  for (OpId op : problem.folded->ops) {
    if (!turns.has_turns(op) && !turns.is_put_off(op)) continue;
    const std::int64_t behind = turns.is_put_off(op) ? turns.bound() : 0;
    const std::vector<Slice>& slices = layout.slices[layout.of_op[op]];
    for (std::uint32_t i = 0; i < slices.size(); ++i) {
      // The first is behind what has no priority of its own, which all of them need.
      priorities.push_back(
          {op, i, -1 - behind - turns.turn(op, slices[i].device, slices[i].begin)});
    }
  }
  return priorities;
}

}  // namespace heterog::decide
